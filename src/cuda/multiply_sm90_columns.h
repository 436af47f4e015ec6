// cuda/multiply_sm90_columns.h: products of row-scaled matrices on Hopper where each group of
// columns has an output of its own.
#pragma once

#include <cstdint>

#include "cuda/device_groups.h"
#include "cuda/multiply_sm90.h"

namespace mxkern::cuda {

// The tile of such a product of [m, k] and [n, k], as though groups were equal. A step of bfloat16
// has half as many columns, and takes as long. Groups end anywhere, and tiles with fewer columns
// have more ends: they take up to a tenth longer than clocks say.
constexpr TileSm90 columns_tile_sm90(CoreElement right, std::int64_t groups, std::int64_t m,
                                     std::int64_t n, std::int64_t k, int processors) {
  TileSm90 best = {};
  std::int64_t least = 0;
  for (const int columns : {256, 192, 128}) {
    const TileSm90 tile = tile_of_columns_sm90(columns, right, m, n);
    const TileClocksSm90 one = tile_clocks_sm90(tile);
    const std::int64_t steps = ceil_div(k, groups * tile.k);
    const std::int64_t time = tile.turns(groups, m, n, processors) * (steps * one.step + one.end) *
                              (1000 + one.longer) * (tile.cluster == 1 ? 108 : 100);
    if (columns < 256 && time * 10 >= least * 9) continue;
    best = tile;
    least = time;
  }
  return best;
}

// a [1, M, K], b [1, N, K], K > 0, of one part each, both FP8 or both bfloat16; finish.out
// [groups.count, M, N]. All of it becomes NaN where ends decrease, lie beyond K, or
// are no multiples of 32 and not K. Sums are those of multiply_sm90 for each group's columns.
// Compute capability 9.0 only.
void multiply_sm90_columns(const char* function, const RowScaled& a, const RowScaled& b,
                           const DeviceGroups& groups, const CoreFinish& finish, Stream stream);

// The same with a tile that is not the one which would be chosen, for tests and tuning.
void multiply_sm90_columns_by(const TileSm90& tile, const char* function, const RowScaled& a,
                              const RowScaled& b, const DeviceGroups& groups,
                              const CoreFinish& finish, Stream stream);

// What an instance file of it launches.
struct ColumnsProductSm90 {
  const char* function;
  const RowScaled &left, &right;
  const DeviceGroups& groups;
  const CoreFinish& finish;
  TileSm90 tile;
  int processors;
  Stream stream;
};
template <class Left, class Right>
void launch_sm90_columns(const ColumnsProductSm90& product);

}  // namespace mxkern::cuda
