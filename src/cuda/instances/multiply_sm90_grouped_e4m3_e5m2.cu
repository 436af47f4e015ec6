// cuda/instances/multiply_sm90_grouped_e4m3_e5m2.cu: the grouped Hopper product of E4M3 with E5M2.
#include "cuda/multiply_sm90_grouped_instances.cuh"

namespace mxkern::cuda {

template <>
void launch_sm90_grouped<E4M3, E5M2>(const GroupedProductSm90& product) {
  launch_grouped_tiles<E4M3, E5M2>(product);
}

}  // namespace mxkern::cuda
