// cuda/instances/quantize_mxfp6_e2m3.cu: the quantizing kernels of one scheme.
#include "cuda/quantize_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_QUANTIZE(MxFp6E2M3)
}  // namespace mxkern::cuda
