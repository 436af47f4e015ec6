// cuda/instances/multiply_few_mxfp6_e3m2.cu: the few-token kernels of one scheme.
#include "cuda/few_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_FEW(MxFp6E3M2)
}  // namespace mxkern::cuda
