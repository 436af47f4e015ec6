// cuda/instances/multiply_few_mxfp4.cu: the few-token kernels of one scheme.
#include "cuda/few_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_FEW(MxFp4)
}  // namespace mxkern::cuda
