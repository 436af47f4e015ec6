// cuda/instances/multiply_grouped_mxint8.cu: grouped products of bfloat16 rows, of one scheme.
#include "cuda/grouped_instances.cuh"

namespace mxkern::cuda {
MXKERN_INSTANTIATE_GROUPED(MxInt8, false)
}  // namespace mxkern::cuda
