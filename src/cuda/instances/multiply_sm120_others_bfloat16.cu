// cuda/instances/multiply_sm120_others_bfloat16.cu: the other formats of 8 and 6 bits on sm_120a,
// bfloat16.
#include "cuda/multiply_blackwell_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_SM120(MxFp8E4M3, MxFp8E5M2, bfloat16)
MXKERN_INSTANTIATE_SM120(MxFp8E4M3, MxFp6E2M3, bfloat16)
MXKERN_INSTANTIATE_SM120(MxFp8E5M2, MxFp8E4M3, bfloat16)
MXKERN_INSTANTIATE_SM120(MxFp8E5M2, MxFp8E5M2, bfloat16)
MXKERN_INSTANTIATE_SM120(MxFp8E5M2, MxFp6E3M2, bfloat16)
MXKERN_INSTANTIATE_SM120(MxFp8E5M2, MxFp6E2M3, bfloat16)
MXKERN_INSTANTIATE_SM120(MxFp8E5M2, MxFp4, bfloat16)
}  // namespace mxkern::cuda
