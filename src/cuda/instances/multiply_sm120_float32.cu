// cuda/instances/multiply_sm120_float32.cu: a product of each kind on sm_120a, in float32.
#include "cuda/multiply_blackwell_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_SM120(MxFp8E4M3, MxFp8E4M3, float)
MXKERN_INSTANTIATE_SM120(MxFp8E4M3, MxFp6E3M2, float)
MXKERN_INSTANTIATE_SM120(MxFp8E4M3, MxFp4, float)
MXKERN_INSTANTIATE_SM120(MxFp4, MxFp4, float)
MXKERN_INSTANTIATE_SM120(NvFp4, NvFp4, float)
}  // namespace mxkern::cuda
