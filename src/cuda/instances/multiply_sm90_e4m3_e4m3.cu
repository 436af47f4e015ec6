// cuda/instances/multiply_sm90_e4m3_e4m3.cu: the Hopper product of E4M3 with E4M3.
#include "cuda/multiply_sm90_instances.cuh"

namespace mxkern::cuda {

template <>
void launch_sm90<E4M3, E4M3>(const ProductSm90& product) {
  launch_tiles<kernels::GemmSm90Config<E4M3, E4M3, 256>, kernels::GemmSm90Config<E4M3, E4M3, 192>,
               kernels::GemmSm90Config<E4M3, E4M3, 128>, kernels::GemmSm90Config<E4M3, E4M3, 64>>(
      product);
}

}  // namespace mxkern::cuda
