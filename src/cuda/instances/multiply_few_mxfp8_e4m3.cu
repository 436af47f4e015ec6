// cuda/instances/multiply_few_mxfp8_e4m3.cu: the few-token kernels of one scheme.
#include "cuda/few_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_FEW(MxFp8E4M3)
}  // namespace mxkern::cuda
