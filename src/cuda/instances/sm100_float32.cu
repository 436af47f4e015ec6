// cuda/instances/sm100_float32.cu: the products of sm_100a, in float32.
#include "cuda/gemm/blackwell/instances.cuh"

namespace mxkern::cuda {
#define MXKERN_INSTANTIATE(Left, Right) MXKERN_INSTANTIATE_SM100(Left, Right, float)
MXKERN_FOR_EACH_SM100_PAIR(MXKERN_INSTANTIATE)
}  // namespace mxkern::cuda
