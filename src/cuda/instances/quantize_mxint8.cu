// cuda/instances/quantize_mxint8.cu: the quantizing kernels of one scheme.
#include "cuda/quantize_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_QUANTIZE(MxInt8)
}  // namespace mxkern::cuda
