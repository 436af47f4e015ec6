// cuda/instances/multiply_few_mxfp6_e2m3.cu: the few-token kernels of one scheme.
#include "cuda/few_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_FEW(MxFp6E2M3)
}  // namespace mxkern::cuda
