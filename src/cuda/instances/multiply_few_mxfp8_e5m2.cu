// cuda/instances/multiply_few_mxfp8_e5m2.cu: the few-token kernels of one scheme.
#include "cuda/few_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_FEW(MxFp8E5M2)
}  // namespace mxkern::cuda
