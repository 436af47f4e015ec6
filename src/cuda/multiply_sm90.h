// cuda/multiply_sm90.h: products of row-scaled matrices on Hopper: FP8 and bfloat16 tensor cores.
#pragma once

#include "cuda/row_scaled.h"
#include "mxkern/core/math.h"

namespace mxkern::cuda {

// How a product is cut: a thread block computes `rows` x `columns` of the output, `k` elements of
// the sums at a time with `stages` of them under way; `cluster` blocks share loads.
struct TileSm90 {
  int rows, columns, k, stages, cluster;

  // Tiles that one multiprocessor computes, one after the other.
  constexpr std::int64_t turns(std::int64_t batch, std::int64_t m, std::int64_t n,
                               int processors) const {
    return ceil_div(batch * ceil_div(m, rows) * ceil_div(n, columns), processors);
  }
};

// The tile for a product of [batch, m, k] and [batch, n, k]: the one of two that keeps the
// processors busier. Blocks side by side share loads where their number is even; those of the wide
// bfloat16 tile lie one below the other. It is the only one where codes are decoded on the left of
// a bfloat16 operand.
constexpr TileSm90 tile_sm90(CoreElement left, CoreElement right, std::int64_t batch,
                             std::int64_t m, std::int64_t n, std::int64_t, int processors) {
  const bool wide = right == CoreElement::bfloat16;
  const TileSm90 large = wide ? TileSm90{128, 256, 64, 4, 1} : TileSm90{192, 128, 128, 5, 1};
  const TileSm90 small{128, 128, large.k, 6, 1};
  // Clocks for an element on an H200, of the tensor cores' alone; and at equal clocks the small
  // tile is slower, as it moves more bytes through shared memory and power limits the chip.
  const auto time = [&](const TileSm90& tile) {
    const int percent = tile.rows * tile.columns == 128 * 128 ? 119 : wide ? 106 : 110;
    return tile.turns(batch, m, n, processors) * tile.rows * tile.columns * percent;
  };
  const bool decodes = wide && left != right;
  TileSm90 tile = !decodes && time(small) < time(large) ? small : large;
  const std::int64_t neighbours =
      tile.columns > tile.rows ? ceil_div(m, tile.rows) : ceil_div(n, tile.columns);
  if (neighbours % 2 == 0) tile.cluster = 2;
  return tile;
}

// out[b] = finish(a[b] . b[b]^T). Both operands are FP8, of either kind, or both are bfloat16, or a
// has E4M3 codes with multipliers and b is bfloat16: then the sums are those of bfloat16. FP8
// products are summed with 14 bits over 128 elements of K and in float32 from there, bfloat16 ones
// in float32. Compute capability 9.0 only.
void multiply_sm90(const char* function, const RowScaled& a, const RowScaled& b,
                   const CoreFinish& finish, const CoreGate& gate, Stream stream);

}  // namespace mxkern::cuda
