// cuda/instances/multiply_sm90_columns_e5m2_e4m3.cu: groups of columns, E5M2 with E4M3, on Hopper.
#include "cuda/multiply_sm90_columns_instances.cuh"

namespace mxkern::cuda {

template <>
void launch_sm90_columns<E5M2, E4M3>(const ColumnsProductSm90& product) {
  launch_columns_tiles<E5M2, E4M3>(product);
}

}  // namespace mxkern::cuda
