// mxkern/kernels/operands/both_tiles.h: the tiles of a tensor that is folded along both directions,
// and what one kernel leaves of them for the next.
#pragma once

#include <cstdint>

#include "mxkern/core/buffer.h"
#include "mxkern/core/math.h"

namespace mxkern::kernels {

// Lines are the rows of x, then its columns. A tile leaves a word of four scale bytes for each of
// its lines: a sixteenth of a byte an element.
struct BothTiles {
  static constexpr int extent = 128;
  static constexpr int lines = 2 * extent;  // of a tile

  std::int64_t batch, down, across;

  MXKERN_HOST_DEVICE static constexpr BothTiles of(const Shape& shape) {
    return {shape.batch, ceil_div(shape.rows, extent), ceil_div(shape.columns, extent)};
  }

  // Lines of a matrix, those of its last tiles that do not exist included.
  MXKERN_HOST_DEVICE constexpr std::int64_t matrix_lines() const {
    return (down + across) * extent;
  }
  constexpr std::int64_t scale_words() const { return batch * down * across * lines; }
  constexpr std::int64_t extreme_words() const { return batch * matrix_lines() * 2; }
};

}  // namespace mxkern::kernels
