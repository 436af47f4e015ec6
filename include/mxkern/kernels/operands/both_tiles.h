// mxkern/kernels/operands/both_tiles.h: the tiles of a tensor that is folded along both directions,
// and what one kernel leaves of them for the next.
#pragma once

#include <cstdint>

#include "mxkern/core/buffer.h"
#include "mxkern/core/divisor.h"
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
  constexpr std::int64_t count() const { return batch * down * across; }
  constexpr std::int64_t scale_words() const { return count() * lines; }
  constexpr std::int64_t extreme_words() const { return batch * matrix_lines() * 2; }
};

// The tiles of all matrices, counted through from left to right and from top to bottom. A thread
// block takes one, and then every so many as there are thread blocks.
struct BothWalk {
  int across, down, count;
  Divisor by_across, by_down;

  // At most 2^31 - 1 of them.
  static constexpr BothWalk of(const BothTiles& tiles) {
    const auto across = static_cast<int>(tiles.across), down = static_cast<int>(tiles.down);
    return {across, down, static_cast<int>(tiles.count()), Divisor(across), Divisor(down)};
  }
};

}  // namespace mxkern::kernels
