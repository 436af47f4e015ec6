// cuda/instances/multiply_sm90_grouped_bfloat16.cu: the grouped Hopper product of bfloat16 rows.
#include "cuda/multiply_sm90_grouped_instances.cuh"

namespace mxkern::cuda {

template <>
void launch_sm90_grouped<bfloat16, bfloat16>(const GroupedProductSm90& product) {
  launch_grouped_tiles<bfloat16, bfloat16>(product);
}

}  // namespace mxkern::cuda
