// cuda/instances/multiply_sm90_columns_bfloat16.cu: groups of columns, bfloat16 rows, on Hopper.
#include "cuda/multiply_sm90_columns_instances.cuh"

namespace mxkern::cuda {

template <>
void launch_sm90_columns<bfloat16, bfloat16>(const ColumnsProductSm90& product) {
  launch_columns_tiles<bfloat16, bfloat16>(product);
}

}  // namespace mxkern::cuda
