// cuda/instances/multiply_sm100_bfloat16.cu: the products of sm_100a, rounded to bfloat16.
#include "cuda/multiply_blackwell_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_SM100(MxFp8E4M3, MxFp8E4M3, bfloat16)
MXKERN_INSTANTIATE_SM100(MxFp8E4M3, MxFp6E3M2, bfloat16)
MXKERN_INSTANTIATE_SM100(MxFp8E4M3, MxFp4, bfloat16)
MXKERN_INSTANTIATE_SM100(MxFp4, MxFp4, bfloat16)
MXKERN_INSTANTIATE_SM100(NvFp4, NvFp4, bfloat16)
}  // namespace mxkern::cuda
