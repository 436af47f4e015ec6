// cuda/instances/multiply_few_nvfp4.cu: the few-token kernels of one scheme.
#include "cuda/few_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_FEW(NvFp4)
}  // namespace mxkern::cuda
