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

  struct Tile {
    int down, right, batch;
  };

  MXKERN_HOST_DEVICE constexpr int count() const { return down * right * batch; }

  MXKERN_HOST_DEVICE constexpr Tile at(int index) const {
    const int matrix = down * right;
    const int in_matrix = index % matrix;
    const int first = in_matrix / (band * right) * band;
    const int height = lower_of(band, down - first);
    const int in_band = in_matrix - first * right;
    return {first + in_band % height, in_band / height, index / matrix};
  }
};

}  // namespace mxkern::kernels
