// cuda/instances/hopper_upcast_right.cu: the Hopper product of bfloat16 with E4M3 codes
// under block scales, computed as its transpose.
#include "cuda/gemm/hopper/instances.cuh"

namespace mxkern::cuda {

template <>
void launch_sm90<bfloat16, E4M3>(const ProductSm90& product) {
  launch_config<kernels::GemmSm90Config<E4M3, bfloat16, 256, true>>(product);
}

}  // namespace mxkern::cuda
