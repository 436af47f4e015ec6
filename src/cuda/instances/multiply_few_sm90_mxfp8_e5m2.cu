// cuda/instances/multiply_few_sm90_mxfp8_e5m2.cu: tens of tokens on Hopper, of one scheme.
#include "cuda/few_sm90_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_FEW_SM90(MxFp8E5M2, false)
}  // namespace mxkern::cuda
