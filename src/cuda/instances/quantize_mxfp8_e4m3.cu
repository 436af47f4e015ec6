// cuda/instances/quantize_mxfp8_e4m3.cu: the quantizing kernels of one scheme.
#include "cuda/quantize_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_QUANTIZE(MxFp8E4M3)
}  // namespace mxkern::cuda
