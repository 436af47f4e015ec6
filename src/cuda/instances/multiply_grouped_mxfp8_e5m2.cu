// cuda/instances/multiply_grouped_mxfp8_e5m2.cu: grouped products of bfloat16 rows, of one scheme.
#include "cuda/grouped_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_GROUPED(MxFp8E5M2, false)
}  // namespace mxkern::cuda
