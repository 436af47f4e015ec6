// cuda/instances/sm120_others_bfloat16.cu: the other formats of 8 and 6 bits on sm_120a,
// bfloat16.
#include "cuda/gemm/blackwell/instances.cuh"

namespace mxkern::cuda {
#define MXKERN_INSTANTIATE(Left, Right) MXKERN_INSTANTIATE_SM120(Left, Right, bfloat16)
MXKERN_FOR_EACH_OTHER_SM120_PAIR(MXKERN_INSTANTIATE)
}  // namespace mxkern::cuda
