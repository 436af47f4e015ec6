// cuda/instances/multiply_sm90_grouped_e5m2_e4m3.cu: the grouped Hopper product of E5M2 with E4M3.
#include "cuda/multiply_sm90_grouped_instances.cuh"

namespace mxkern::cuda {

template <>
void launch_sm90_grouped<E5M2, E4M3>(const GroupedProductSm90& product) {
  launch_grouped_tiles<E5M2, E4M3>(product);
}

}  // namespace mxkern::cuda
