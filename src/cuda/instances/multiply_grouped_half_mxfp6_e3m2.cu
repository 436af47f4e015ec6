// cuda/instances/multiply_grouped_half_mxfp6_e3m2.cu: grouped products of float16 rows, of one
// scheme.
#include "cuda/grouped_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_GROUPED(MxFp6E3M2, true)
}  // namespace mxkern::cuda
