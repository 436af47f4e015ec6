// cuda/instances/multiply_sm100_float32.cu: the products of sm_100a, in float32.
#include "cuda/multiply_blackwell_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_SM100(MxFp8E4M3, MxFp8E4M3, float)
MXKERN_INSTANTIATE_SM100(MxFp8E4M3, MxFp6E3M2, float)
MXKERN_INSTANTIATE_SM100(MxFp8E4M3, MxFp4, float)
MXKERN_INSTANTIATE_SM100(MxFp4, MxFp4, float)
MXKERN_INSTANTIATE_SM100(NvFp4, NvFp4, float)
}  // namespace mxkern::cuda
