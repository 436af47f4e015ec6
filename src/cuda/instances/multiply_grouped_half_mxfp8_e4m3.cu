// cuda/instances/multiply_grouped_half_mxfp8_e4m3.cu: grouped products of float16 rows, of one
// scheme.
#include "cuda/grouped_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_GROUPED(MxFp8E4M3, true)
}  // namespace mxkern::cuda
