// cuda/instances/quantize_mxfp8_e5m2.cu: the quantizing kernels of one scheme.
#include "cuda/quantize_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_QUANTIZE(MxFp8E5M2)
}  // namespace mxkern::cuda
