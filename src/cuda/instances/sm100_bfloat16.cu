// cuda/instances/sm100_bfloat16.cu: the products of sm_100a, rounded to bfloat16.
#include "cuda/gemm/blackwell/instances.cuh"

namespace mxkern::cuda {
#define MXKERN_INSTANTIATE(Left, Right) MXKERN_INSTANTIATE_SM100(Left, Right, bfloat16)
MXKERN_FOR_EACH_SM100_PAIR(MXKERN_INSTANTIATE)
}  // namespace mxkern::cuda
