// cuda/instances/multiply_few_mxint8.cu: the few-token kernels of one scheme.
#include "cuda/few_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_FEW(MxInt8)
}  // namespace mxkern::cuda
