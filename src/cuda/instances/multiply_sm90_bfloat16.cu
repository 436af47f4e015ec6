// cuda/instances/multiply_sm90_bfloat16.cu: the Hopper product of bfloat16 with bfloat16.
#include "cuda/multiply_sm90_instances.cuh"

namespace mxkern::cuda {

template <>
void launch_sm90<bfloat16, bfloat16>(const ProductSm90& product) {
  launch_tiles<kernels::GemmSm90Config<bfloat16, bfloat16, 256>,
               kernels::GemmSm90Config<bfloat16, bfloat16, 192>,
               kernels::GemmSm90Config<bfloat16, bfloat16, 128>,
               kernels::GemmSm90Config<bfloat16, bfloat16, 64>>(product);
}

}  // namespace mxkern::cuda
