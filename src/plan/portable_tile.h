// plan/portable_tile.h: the tile of a product of bfloat16 rows on any GPU.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"

namespace mxkern::cuda {

// Rows and columns of the tile that a thread block computes of a product, on a GPU with so
// many multiprocessors: small where there would be too few large ones.
constexpr int portable_tile(std::int64_t batch, std::int64_t rows, std::int64_t columns,
                            int processors) {
  const std::int64_t large = batch * ceil_div(rows, 128) * ceil_div(columns, 128);
  return large >= processors ? 128 : 64;
}

}  // namespace mxkern::cuda
