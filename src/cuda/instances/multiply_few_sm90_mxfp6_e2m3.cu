// cuda/instances/multiply_few_sm90_mxfp6_e2m3.cu: tens of tokens on Hopper, of one scheme.
#include "cuda/few_sm90_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_FEW_SM90(MxFp6E2M3, false)
}  // namespace mxkern::cuda
