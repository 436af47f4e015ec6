// mxkern/kernels/quantize/patch/walk.cuh: which tiles a thread block takes, and in which order.
#pragma once

#include <cstdint>

#include "mxkern/core/platform.h"

namespace mxkern::kernels {

// Tiles that thread blocks which stay take one after the other, so that their row-major scales are
// stored together: as many sectors as lines, where each tile has a part of a sector. In powers of
// two, which divide the tiles of a tensor.
struct PatchGroup {
  static constexpr int most = 4;  // in each direction: a sector of scales
  int log2_across, log2_down;
};

// The whole tiles of a tensor in groups, and every how many groups a thread block takes one.
struct PatchGrid {
  int across, down, batch;  // groups
  int step_across, step_down, step_batch;
  PatchGroup group;

  static constexpr PatchGrid of(std::int64_t across, std::int64_t down, std::int64_t batch,
                                std::int64_t step, PatchGroup group) {
    const auto as_int = [](std::int64_t n) { return static_cast<int>(n); };
    return {as_int(across),
            as_int(down),
            as_int(batch),
            as_int(step % across),
            as_int(step / across % down),
            as_int(step / across / down),
            group};
  }

  // Tiles from top to bottom.
  __device__ __forceinline__ int tiles_down() const { return down << group.log2_down; }
};

struct PatchTile {
  int across, down, batch;  // the group
  int inner;                // the tile in it

  // Thread blocks that stay are numbered; others have a grid like that of the tiles, as divisions
  // would take longer than a part of the work.
  template <bool Stays>
  __device__ __forceinline__ static PatchTile first(const PatchGrid& grid) {
    if constexpr (!Stays) {
      return {static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y),
              static_cast<int>(blockIdx.z), 0};
    }
    const unsigned line = blockIdx.x / grid.across;
    return {static_cast<int>(blockIdx.x % grid.across), static_cast<int>(line % grid.down),
            static_cast<int>(line / grid.down), 0};
  }

  __device__ __forceinline__ PatchTile next(const PatchGrid& grid) const {
    if (!is_last_of_group(grid)) return {across, down, batch, inner + 1};
    PatchTile tile = {across + grid.step_across, down + grid.step_down, batch + grid.step_batch, 0};
    if (tile.across >= grid.across) {
      tile.across -= grid.across;
      ++tile.down;
    }
    if (tile.down >= grid.down) {
      tile.down -= grid.down;
      ++tile.batch;
    }
    return tile;
  }

  __device__ __forceinline__ int inner_across(const PatchGrid& grid) const {
    return inner & ((1 << grid.group.log2_across) - 1);
  }
  // The tile among all of the tensor.
  template <bool Stays>
  __device__ __forceinline__ int tile_across(const PatchGrid& grid) const {
    if constexpr (!Stays) return across;
    return (across << grid.group.log2_across) + inner_across(grid);
  }
  template <bool Stays>
  __device__ __forceinline__ int tile_down(const PatchGrid& grid) const {
    if constexpr (!Stays) return down;
    return (down << grid.group.log2_down) + (inner >> grid.group.log2_across);
  }
  __device__ __forceinline__ bool is_last_across(const PatchGrid& grid) const {
    return inner_across(grid) + 1 == 1 << grid.group.log2_across;
  }
  __device__ __forceinline__ bool is_last_of_group(const PatchGrid& grid) const {
    return inner + 1 == 1 << (grid.group.log2_across + grid.group.log2_down);
  }
};

}  // namespace mxkern::kernels
