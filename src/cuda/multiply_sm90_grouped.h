// cuda/multiply_sm90_grouped.h: grouped products of row-scaled matrices on Hopper.
#pragma once

#include <cstdint>

#include "cuda/device_groups.h"
#include "cuda/multiply_sm90.h"

namespace mxkern::cuda {

// The tile of a grouped product with right operands [n, k]. Thread blocks of a cluster have the
// same 128 rows and lie side by side; of what takes least time the widest one.
constexpr TileSm90 grouped_tile_sm90(CoreElement right, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t fewest_odd = 13;  // see with_cluster
  TileSm90 best = {};
  std::int64_t least = 0;
  for (const int columns : {256, 192, 128}) {
    TileSm90 tile = tile_of_columns_sm90(columns, right, 128, n);
    const std::int64_t neighbours = ceil_div(n, columns);
    tile.cluster = neighbours % 2 == 0 || neighbours >= fewest_odd ? 2 : 1;
    const std::int64_t blocks = round_up(neighbours, tile.cluster);
    const TileClocksSm90 one = tile_clocks_sm90(tile);
    const std::int64_t clocks = right == CoreElement::bfloat16
                                    ? clocks_of_turns_sm90(tile, blocks) * ceil_div(k, tile.k)
                                    : blocks * (ceil_div(k, tile.k) * one.step + one.end);
    const std::int64_t time = clocks * (tile.cluster == 1 ? 108 : 100);
    if (columns < 256 && time >= least) continue;
    best = tile;
    least = time;
  }
  return best;
}

// Rows of its tiles, of which boxes are loaded: where groups have few, half a tile's.
constexpr int grouped_height_sm90(std::int64_t rows, std::int64_t groups) {
  constexpr std::int64_t few = 32;
  return rows <= few * groups ? 64 : 128;
}

// Whether warpgroups without rows multiply nothing. Where most tiles have all rows that saves
// little, and clusters of others, which are sooner done, no longer share in the cache what they
// read.
constexpr bool skips_rows_sm90(std::int64_t rows, std::int64_t groups) {
  constexpr std::int64_t many = 256;
  return rows <= many * groups;
}

// a [1, M, K], b [groups.count, N, K], at least one matrix and K > 0, both FP8 or both bfloat16;
// finish.out [1, M, N]. Rows of no group become beta * out; all become NaN where ends decrease or
// lie beyond the rows. Sums are those of multiply_sm90. Compute capability 9.0 only.
void multiply_sm90_grouped(const char* function, const RowScaled& a, const RowScaled& b,
                           const DeviceGroups& groups, const CoreFinish& finish, Stream stream);

// The same with tiles that are not those which would be chosen, for tests and tuning.
void multiply_sm90_grouped_by(const TileSm90& tile, int height, const char* function,
                              const RowScaled& a, const RowScaled& b, const DeviceGroups& groups,
                              const CoreFinish& finish, Stream stream);

// What an instance file of it launches.
struct GroupedProductSm90 {
  const char* function;
  const RowScaled &left, &right;
  const DeviceGroups& groups;
  const CoreFinish& finish;
  TileSm90 tile;
  int height, processors;
  Stream stream;
};
template <class Left, class Right>
void launch_sm90_grouped(const GroupedProductSm90& product);

}  // namespace mxkern::cuda
