// cuda/instances/quantize_mxfp6_e3m2.cu: the quantizing kernels of one scheme.
#include "cuda/quantize_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_QUANTIZE(MxFp6E3M2)
}  // namespace mxkern::cuda
