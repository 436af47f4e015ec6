// cuda/instances/multiply_grouped_nvfp4.cu: grouped products of bfloat16 rows, of one scheme.
#include "cuda/grouped_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_GROUPED(NvFp4, false)
}  // namespace mxkern::cuda
