// cuda/instances/multiply_sm90_grouped_e4m3_e4m3.cu: the grouped Hopper product of E4M3 with E4M3.
#include "cuda/multiply_sm90_grouped_instances.cuh"

namespace mxkern::cuda {

template <>
void launch_sm90_grouped<E4M3, E4M3>(const GroupedProductSm90& product) {
  launch_grouped_tiles<E4M3, E4M3>(product);
}

}  // namespace mxkern::cuda
