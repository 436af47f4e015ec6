// cuda/instances/multiply_sm90_columns_e5m2_e5m2.cu: groups of columns, E5M2 with E5M2, on Hopper.
#include "cuda/multiply_sm90_columns_instances.cuh"

namespace mxkern::cuda {

template <>
void launch_sm90_columns<E5M2, E5M2>(const ColumnsProductSm90& product) {
  launch_columns_tiles<E5M2, E5M2>(product);
}

}  // namespace mxkern::cuda
