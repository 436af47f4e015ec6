// cuda/instances/multiply_grouped_half_mxfp6_e2m3.cu: grouped products of float16 rows, of one
// scheme.
#include "cuda/grouped_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_GROUPED(MxFp6E2M3, true)
}  // namespace mxkern::cuda
