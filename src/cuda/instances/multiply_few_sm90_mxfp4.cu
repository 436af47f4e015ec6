// cuda/instances/multiply_few_sm90_mxfp4.cu: tens of tokens on Hopper, of one scheme.
#include "cuda/few_sm90_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_FEW_SM90(MxFp4, false)
}  // namespace mxkern::cuda
