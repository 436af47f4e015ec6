// cuda/instances/multiply_sm120_bfloat16.cu: a product of each kind on sm_120a, rounded to
// bfloat16.
#include "cuda/multiply_blackwell_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_SM120(MxFp8E4M3, MxFp8E4M3, bfloat16)
MXKERN_INSTANTIATE_SM120(MxFp8E4M3, MxFp6E3M2, bfloat16)
MXKERN_INSTANTIATE_SM120(MxFp8E4M3, MxFp4, bfloat16)
MXKERN_INSTANTIATE_SM120(MxFp4, MxFp4, bfloat16)
MXKERN_INSTANTIATE_SM120(NvFp4, NvFp4, bfloat16)
}  // namespace mxkern::cuda
