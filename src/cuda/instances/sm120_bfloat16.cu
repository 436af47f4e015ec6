// cuda/instances/sm120_bfloat16.cu: a product of each kind on sm_120a, rounded to
// bfloat16.
#include "cuda/gemm/blackwell/instances.cuh"

namespace mxkern::cuda {
#define MXKERN_INSTANTIATE(Left, Right) MXKERN_INSTANTIATE_SM120(Left, Right, bfloat16)
MXKERN_FOR_EACH_SM120_KIND(MXKERN_INSTANTIATE)
}  // namespace mxkern::cuda
