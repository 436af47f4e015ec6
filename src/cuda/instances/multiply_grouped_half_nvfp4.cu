// cuda/instances/multiply_grouped_half_nvfp4.cu: grouped products of float16 rows, of one scheme.
#include "cuda/grouped_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_GROUPED(NvFp4, true)
}  // namespace mxkern::cuda
