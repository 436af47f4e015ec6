// plan/hopper/grouped_tiles.h: the tiles of grouped products on Hopper.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "plan/hopper/tiles.h"
#include "tuning/h200.h"

namespace mxkern::cuda {

// The tile of a grouped product with right operands [n, k]. Thread blocks of a cluster have the
// same 128 rows and lie side by side; of what takes least time the widest one.
constexpr TileSm90 grouped_tile_sm90(CoreElement right, std::int64_t n, std::int64_t k) {
  TileSm90 best = {};
  std::int64_t least = 0;
  for (const int columns : {256, 192, 128}) {
    TileSm90 tile = tile_of_columns_sm90(columns, right, 128, n);
    const std::int64_t neighbours = ceil_div(n, columns);
    tile.cluster = shares_loads(neighbours) ? 2 : 1;
    const std::int64_t blocks = round_up(neighbours, tile.cluster);
    const auto one = tile_clocks_sm90(tile);
    const std::int64_t clocks = right == CoreElement::bfloat16
                                    ? clocks_of_turns_sm90(tile, blocks) * ceil_div(k, tile.k)
                                    : blocks * (ceil_div(k, tile.k) * one.step + one.end);
    const std::int64_t time = clocks * percent_of_cluster(tile);
    if (columns < 256 && time >= least) continue;
    best = tile;
    least = time;
  }
  return best;
}

// Rows of its tiles, of which boxes are loaded: where groups have few, half a tile's.
constexpr int grouped_height_sm90(std::int64_t rows, std::int64_t groups) {
  return rows <= tuning::h200::tiles::decode_group_rows * groups ? 64 : 128;
}

// Whether warpgroups without rows multiply nothing.
constexpr bool skips_rows_sm90(std::int64_t rows, std::int64_t groups) {
  return rows <= tuning::h200::tiles::many_group_rows * groups;
}

// The tile of a product of [m, k] and [n, k] in which each group of columns has an output, as
// though groups were equal. A step of bfloat16 has half as many columns, and takes as long. Groups
// end anywhere, and tiles with fewer columns have more ends: they take up to a tenth longer than
// clocks say.
constexpr TileSm90 columns_tile_sm90(CoreElement right, std::int64_t groups, std::int64_t m,
                                     std::int64_t n, std::int64_t k, int processors) {
  TileSm90 best = {};
  std::int64_t least = 0;
  for (const int columns : {256, 192, 128}) {
    const TileSm90 tile = tile_of_columns_sm90(columns, right, m, n);
    const auto one = tile_clocks_sm90(tile);
    const std::int64_t steps = ceil_div(k, groups * tile.k);
    const std::int64_t time = tile.turns(groups, m, n, processors) * (steps * one.step + one.end) *
                              (1000 + one.longer) * percent_of_cluster(tile);
    if (columns < 256 && time * 10 >= least * tuning::h200::tiles::ends_tenths) continue;
    best = tile;
    least = time;
  }
  return best;
}

}  // namespace mxkern::cuda
