// mxkern/kernels/gemm_sm90_order.cuh: which tile of the output comes when.
#pragma once

#include "mxkern/core/math.h"

namespace mxkern::kernels {

// The first row and column of a tile of the output.
struct TileCorner {
  int row, column, batch;
};

// Tiles here are what a cluster computes at once. Those that are computed at the same time should
// share rows of both operands in the cache: `band` tiles go down, then one to the right.
struct TileOrder {
  int down, right, batch;
  int band;
  // Of products that make rows late: the height of the bands of all tiles but the last ones of the
  // order above, from `whole` on. Which tiles are divided along K must not depend on what is late.
  int late_band;
  int whole;

  struct Tile {
    int down, right, batch;
  };

  MXKERN_HOST_DEVICE constexpr int count() const { return down * right * batch; }

  MXKERN_HOST_DEVICE constexpr Tile at(int index) const { return in_bands(index, band); }

  MXKERN_HOST_DEVICE constexpr Tile late_at(int index) const {
    if (late_band == band || index >= whole) return in_bands(index, band);
    Tile tile = in_bands(index, late_band);
    // One of the last tiles leaves its place to the one that comes in its own, and so on.
    for (int own = index_of(tile); own >= whole; own = index_of(tile)) {
      tile = in_bands(own, late_band);
    }
    return tile;
  }

 private:
  MXKERN_HOST_DEVICE constexpr Tile in_bands(int index, int high) const {
    const int matrix = down * right;
    const int in_matrix = index % matrix;
    const int first = in_matrix / (high * right) * high;
    const int height = lower_of(high, down - first);
    const int in_band = in_matrix - first * right;
    return {first + in_band % height, in_band / height, index / matrix};
  }

  // Where a tile comes in bands of `band`.
  MXKERN_HOST_DEVICE constexpr int index_of(const Tile& tile) const {
    const int first = tile.down / band * band;
    const int height = lower_of(band, down - first);
    return tile.batch * down * right + first * right + tile.right * height + tile.down - first;
  }
};

}  // namespace mxkern::kernels
