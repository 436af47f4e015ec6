// cuda/instances/hopper_upcast_left.cu: the Hopper product of E4M3 codes under block
// scales, on the left, with bfloat16.
#include "cuda/gemm/hopper/instances.cuh"

namespace mxkern::cuda {

template <>
void launch_sm90<E4M3, bfloat16>(const ProductSm90& product) {
  launch_config<kernels::GemmSm90Config<E4M3, bfloat16, 256>>(product);
}

}  // namespace mxkern::cuda
