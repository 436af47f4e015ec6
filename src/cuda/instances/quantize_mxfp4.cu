// cuda/instances/quantize_mxfp4.cu: the quantizing kernels of one scheme.
#include "cuda/quantize_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_QUANTIZE(MxFp4)
}  // namespace mxkern::cuda
