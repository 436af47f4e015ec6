// cuda/instances/multiply_few_sm90_half_mxint8.cu: tens of float16 tokens on Hopper, of one scheme.
#include "cuda/few_sm90_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_FEW_SM90(MxInt8, true)
}  // namespace mxkern::cuda
