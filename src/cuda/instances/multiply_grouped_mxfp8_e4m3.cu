// cuda/instances/multiply_grouped_mxfp8_e4m3.cu: grouped products of bfloat16 rows, of one scheme.
#include "cuda/grouped_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_GROUPED(MxFp8E4M3, false)
}  // namespace mxkern::cuda
