// tests/structure/blackwell_products_sm100.cu: bfloat16 products of sm_100a as a release has them;
// of float32 ones one kernel whole, and of the others what the host asks of them.
#include "tests/structure/blackwell_products.h"

#include "cuda/instances/sm100_bfloat16.cu"

namespace mxkern::cuda {

MXKERN_INSTANTIATE_SM100(MxFp8E4M3, MxFp8E4M3, float)
MXKERN_ASK_PRODUCTS(sm100_kernel, GemmSm100)

}  // namespace mxkern::cuda
