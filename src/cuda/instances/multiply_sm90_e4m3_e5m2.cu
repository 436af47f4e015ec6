// cuda/instances/multiply_sm90_e4m3_e5m2.cu: the Hopper product of E4M3 with E5M2.
#include "cuda/multiply_sm90_instances.cuh"

namespace mxkern::cuda {

template <>
void launch_sm90<E4M3, E5M2>(const ProductSm90& product) {
  launch_tiles<kernels::GemmSm90Config<E4M3, E5M2, 256>, kernels::GemmSm90Config<E4M3, E5M2, 192>,
               kernels::GemmSm90Config<E4M3, E5M2, 128>, kernels::GemmSm90Config<E4M3, E5M2, 64>>(
      product);
}

}  // namespace mxkern::cuda
