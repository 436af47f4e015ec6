// cuda/instances/sm120_float32.cu: a product of each kind on sm_120a, in float32.
#include "cuda/gemm/blackwell/instances.cuh"

namespace mxkern::cuda {
#define MXKERN_INSTANTIATE(Left, Right) MXKERN_INSTANTIATE_SM120(Left, Right, float)
MXKERN_FOR_EACH_SM120_KIND(MXKERN_INSTANTIATE)
}  // namespace mxkern::cuda
