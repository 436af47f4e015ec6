// cuda/instances/multiply_few_sm90_mxfp6_e2m3.cu: Hopper's products of tens of tokens, of one scheme.
#include "cuda/few_sm90_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_FEW_SM90(MxFp6E2M3)
}  // namespace mxkern::cuda
