// cuda/multiply_sm90_grouped.h: grouped products of row-scaled matrices on Hopper.
#pragma once

#include <cstdint>

#include "cuda/groups_of_rows.h"
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

// Whether clusters count the tiles that they take: some have fewer rows than others, and take less
// time then. Where none has more than a warpgroup's they come in turns, and where most have all, as
// clusters that go side by side read the same at the same time: on an H200 that takes 4 to 5 % less
// time with 512 rows a group and more, and 1 to 8 % more with 64 to 256.
constexpr bool counts_grouped_tiles_sm90(std::int64_t rows, std::int64_t groups) {
  constexpr std::int64_t many = 384;
  return grouped_height_sm90(rows, groups) > 64 && rows <= many * groups;
}

// a [1, M, K], b [groups.count, N, K], at least one matrix and K > 0, both FP8 or both bfloat16;
// finish.out [1, M, N], without beta. Rows of no group become zeros; all become NaN where ends
// decrease or lie beyond the rows. counter: a word that is 0 when the product starts, or null. Sums
// are those of multiply_sm90. Compute capability 9.0 only.
void multiply_sm90_grouped(const char* function, const RowScaled& a, const RowScaled& b,
                           const GroupsOfRows& groups, const CoreFinish& finish,
                           std::uint32_t* counter, Stream stream);

// The same with tiles that are not those which would be chosen, for tests and tuning.
void multiply_sm90_grouped_by(const TileSm90& tile, int height, const char* function,
                              const RowScaled& a, const RowScaled& b, const GroupsOfRows& groups,
                              const CoreFinish& finish, std::uint32_t* counter, Stream stream);

// What an instance file of it launches.
struct GroupedProductSm90 {
  const char* function;
  const RowScaled &left, &right;
  const GroupsOfRows& groups;
  const CoreFinish& finish;
  TileSm90 tile;
  int height, processors;
  std::uint32_t* counter;
  Stream stream;
};
template <class Left, class Right>
void launch_sm90_grouped(const GroupedProductSm90& product);

}  // namespace mxkern::cuda
