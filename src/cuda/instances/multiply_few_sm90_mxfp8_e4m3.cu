// cuda/instances/multiply_few_sm90_mxfp8_e4m3.cu: tens of tokens on Hopper, of one scheme.
#include "cuda/few_sm90_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_FEW_SM90(MxFp8E4M3, false)
}  // namespace mxkern::cuda
