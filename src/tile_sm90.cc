// tile_sm90.cc: the tiles of products on Hopper; pure, so that a plan can say them on any machine.
#include "cuda/multiply_sm90.h"
#include "mxkern/core/math.h"

namespace mxkern::cuda {

TileSm90 tile_sm90(CoreElement left, CoreElement right, std::int64_t batch, std::int64_t m,
                   std::int64_t n, std::int64_t k, int processors) {
  static_cast<void>(right), static_cast<void>(batch), static_cast<void>(k);
  static_cast<void>(processors);
  if (left == CoreElement::bfloat16) return {128, 256, 64, 4, ceil_div(m, 128) % 2 == 0 ? 2 : 1};
  return {256, 128, 128, 4, ceil_div(n, 128) % 2 == 0 ? 2 : 1};
}

}  // namespace mxkern::cuda
