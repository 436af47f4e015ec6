// mxkern/kernels/gemm/group_tiles.h: the tiles of a grouped product whose thread blocks stay, and
// their order.
#pragma once

#include "mxkern/core/divisor.h"
#include "mxkern/core/math.h"
#include "mxkern/kernels/gemm/row_groups.h"

namespace mxkern::kernels {

// The tiles of one group come in bands of at most so many that lie one below the other, from left
// to right: those that are computed at the same time share rows of both operands in the cache.
struct GroupTileOrder {
  struct Tile {
    int down, right;
  };

  int across = 1, band = 1;
  Divisor band_tiles;

  constexpr GroupTileOrder() = default;
  constexpr GroupTileOrder(int tiles_across, int band_height)
      : across(tiles_across), band(band_height), band_tiles(tiles_across * band_height) {}

  // Of a group that has `down` rows of tiles.
  MXKERN_HOST_DEVICE constexpr Tile at(int index, int down) const {
    const int first = band_tiles.quotient(index) * band;
    const int height = lower_of(band, down - first);
    const int in_band = index - first * across;
    const int right = in_band / height;
    return {first + in_band - right * height, right};
  }
};

// A group's rows are taken `height` at a time.
struct GroupTiles {
  GroupEnds groups;
  int height;
  GroupTileOrder order;

  MXKERN_HOST_DEVICE constexpr int down(int rows) const { return (rows + height - 1) / height; }
};

}  // namespace mxkern::kernels
