// mxkern/kernels/gemm/hopper/tile_order.cuh: which tile of the output comes when.
#pragma once

#include "mxkern/core/divisor.h"
#include "mxkern/core/math.h"

namespace mxkern::kernels {

// The first row and column of a tile of the output.
struct TileCorner {
  int row, column, batch;
};

// Tiles here are what a cluster computes at once. Those that are computed at the same time should
// share rows of both operands in the cache: `band` tiles go down, then one to the right. Where a
// tile lies is asked by threads that others wait for, so quotients are multiplications: with
// divisions the first loads of a tile came 400 clocks later.
class TileOrder {
 public:
  struct Tile {
    int down, right, batch;
  };

  TileOrder() = default;
  // late_band: of products that make rows late, the height of the bands of all tiles but the last
  // ones of the order above, from `whole` on. Which tiles are divided along K must not depend on
  // what is late.
  constexpr TileOrder(int down, int right, int batch, int band, int late_band, int whole)
      : down_(down),
        right_(right),
        batch_(batch),
        whole_(whole),
        matrix_(down * right),
        bands_(band, down, right),
        late_bands_(late_band, down, right) {}

  MXKERN_HOST_DEVICE constexpr int count() const { return down_ * right_ * batch_; }

  MXKERN_HOST_DEVICE constexpr Tile at(int index) const { return in_bands(index, bands_); }

  MXKERN_HOST_DEVICE constexpr Tile late_at(int index) const {
    if (late_bands_.high == bands_.high || index >= whole_) return in_bands(index, bands_);
    Tile tile = in_bands(index, late_bands_);
    // One of the last tiles leaves its place to the one that comes in its own, and so on.
    for (int own = index_of(tile); own >= whole_; own = index_of(tile)) {
      tile = in_bands(own, late_bands_);
    }
    return tile;
  }

 private:
  struct Bands {
    int high = 1;
    Divisor tiles;                // of a band
    Divisor height, last_height;  // of bands, and of the last one

    constexpr Bands() = default;
    constexpr Bands(int band, int down, int right)
        : high(band), tiles(band * right), height(band), last_height((down - 1) % band + 1) {}
  };

  MXKERN_HOST_DEVICE constexpr Tile in_bands(int index, const Bands& bands) const {
    const int batch = batch_ == 1 ? 0 : matrix_.quotient(index);
    const int in_matrix = index - batch * down_ * right_;
    const int first = bands.tiles.quotient(in_matrix) * bands.high;
    const int height = lower_of(bands.high, down_ - first);
    const int in_band = in_matrix - first * right_;
    const int right = (height == bands.high ? bands.height : bands.last_height).quotient(in_band);
    return {first + in_band - right * height, right, batch};
  }

  // Where a tile comes in bands of `band`.
  MXKERN_HOST_DEVICE constexpr int index_of(const Tile& tile) const {
    const int first = bands_.height.quotient(tile.down) * bands_.high;
    const int height = lower_of(bands_.high, down_ - first);
    return tile.batch * down_ * right_ + first * right_ + tile.right * height + tile.down - first;
  }

  int down_ = 0, right_ = 0, batch_ = 0, whole_ = 0;
  Divisor matrix_;
  Bands bands_, late_bands_;
};

}  // namespace mxkern::kernels
