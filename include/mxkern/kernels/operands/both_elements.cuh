// mxkern/kernels/operands/both_elements.cuh: the tiles of a tensor that is folded along both
// directions, and their elements, which lanes copy ahead.
#pragma once

#include <cstdint>

#include "mxkern/kernels/operands/both_tiles.h"
#include "mxkern/kernels/ptx/copy_async.cuh"
#include "mxkern/kernels/ptx/mbarrier.cuh"
#include "mxkern/kernels/quantize/patch/elements.cuh"

namespace mxkern::kernels {

// A warp has 32 rows of 64 columns of a tile, whole lines of the caches; a lane has a patch of
// 8 x 8, eight patches across and four down. So a warp has whole blocks of both directions.
inline constexpr int both_warp_columns = 64;
inline constexpr int both_warp_rows = 32;
inline constexpr int both_patches_across = both_warp_columns / patch_extent;

// Thread blocks have a thread for each line of a tile, too.
static_assert(BothTiles::extent == tile_extent && BothTiles::lines == patch_threads);

// threadIdx.x, hidden: addresses made of it are worked out for each tile, not kept in registers.
__device__ __forceinline__ unsigned own_thread() {
  unsigned thread = threadIdx.x;
  asm volatile("" : "+r"(thread));
  return thread;
}

// The first column and row of a lane in the tile.
__device__ __forceinline__ int both_column(unsigned thread = threadIdx.x) {
  return static_cast<int>(thread / 32 % 2) * both_warp_columns +
         static_cast<int>(thread % both_patches_across) * patch_extent;
}
__device__ __forceinline__ int both_row(unsigned thread = threadIdx.x) {
  return static_cast<int>(thread / 64) * both_warp_rows +
         static_cast<int>(thread / both_patches_across % 4) * patch_extent;
}

// Rows start on 16 bytes and have a multiple of 8 elements of 16 bits. Lines of a matrix are less
// than 2^30, as their extremes are.
struct BothElements {
  const void* x;
  std::int64_t batch_stride, row_stride;
  int rows, columns;
  BothWalk walk;
};

// Where a tile lies.
struct BothTile {
  static constexpr int extent = BothTiles::extent;
  int index, batch, down, across;

  __device__ __forceinline__ BothTile(const BothWalk& walk, int tile) : index(tile) {
    const int line = walk.by_across.quotient(tile);
    across = tile - line * walk.across;
    batch = walk.by_down.quotient(line);
    down = line - batch * walk.down;
  }

  __device__ __forceinline__ int row() const { return down * extent; }
  __device__ __forceinline__ int column() const { return across * extent; }

  // The place of a thread's line among those of all tiles, and of all matrices.
  __device__ __forceinline__ std::int64_t scale_word(unsigned thread) const {
    return std::int64_t{index} * BothTiles::lines + thread;
  }
  __device__ __forceinline__ int line(const BothWalk& walk, unsigned thread) const {
    const int first = thread < extent ? row() : (walk.down - 1) * extent + column();
    return batch * (walk.down + walk.across) * extent + first + static_cast<int>(thread);
  }
};

// Room in shared memory for the patches of `Stages` tiles. Threads read only what they have copied
// themselves, so that no barrier is needed.
template <int Stages>
struct BothAhead {
  uint4 octets[Stages][patch_extent][patch_threads];

  // Begins to copy this lane's patch of a tile, with zeros for what does not exist: by
  // copy(shared address, address, bytes). What is committed counts as a stage, even if empty.
  template <class T, class Copy>
  __device__ __forceinline__ void begin(int stage, const BothElements& x, const BothTile& tile,
                                        const Copy& copy) {
    const unsigned thread = own_thread();
    const int first_row = tile.row() + both_row(thread);
    const int first_column = tile.column() + both_column(thread);
    const int left = first_column < x.columns ? x.rows - first_row : 0;
    // What is not read still needs an address.
    const T* from = static_cast<const T*>(x.x);
    if (left > 0) from += tile.batch * x.batch_stride + first_row * x.row_stride + first_column;
    const std::uint32_t to = ptx::shared_address(&octets[stage][0][thread]);
#pragma unroll
    for (int i = 0; i < patch_extent; ++i) {
      copy(to + i * static_cast<std::uint32_t>(sizeof(octets[0][0])), from, i < left ? 16 : 0);
      if (i + 1 < left) from += x.row_stride;
    }
  }

  // The patch that the oldest of `Stages` commits has copied.
  template <class T>
  __device__ __forceinline__ void finish(int stage, PatchElements<T>& patch) const {
    ptx::copy_async_wait<Stages - 1>();
#pragma unroll
    for (int i = 0; i < patch_extent; ++i) {
      const uint4 own = octets[stage][i][threadIdx.x];
      patch.raw[i] = {{own.x, own.y, own.z, own.w}};
    }
  }
};

}  // namespace mxkern::kernels
