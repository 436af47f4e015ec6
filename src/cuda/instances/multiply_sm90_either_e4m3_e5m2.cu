// cuda/instances/multiply_sm90_either_e4m3_e5m2.cu: the Hopper product of E4M3 with E5M2, or of
// the same operands expanded, whichever the device finds to be right.
#include "cuda/multiply_sm90_either_instances.cuh"

namespace mxkern::cuda {

template <>
void launch_either_sm90<E4M3, E5M2>(const EitherProductSm90& product) {
  launch_either_tiles<E4M3, E5M2>(product);
}

}  // namespace mxkern::cuda
