// cuda/instances/quantize_nvfp4.cu: the quantizing kernels of one scheme.
#include "cuda/quantize_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_QUANTIZE(NvFp4)
}  // namespace mxkern::cuda
