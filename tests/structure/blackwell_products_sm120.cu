// tests/structure/blackwell_products_sm120.cu: bfloat16 products of sm_120a as a release has them;
// of float32 ones one kernel whole, and of the others what the host asks of them.
#include "tests/structure/blackwell_products.h"

#include "cuda/instances/sm120_bfloat16.cu"

namespace mxkern::cuda {

MXKERN_INSTANTIATE_SM120(MxFp8E4M3, MxFp8E4M3, float)
MXKERN_ASK_PRODUCTS(sm120_kernel, GemmSm120)

}  // namespace mxkern::cuda
