// mxkern/kernels/operands/both_scales.cuh: the block scales of 16-bit elements along rows and along
// columns, and how far those of a line lie apart.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/operands/both_tiles.h"
#include "mxkern/kernels/quantize/patch/elements.cuh"
#include "mxkern/kernels/quantize/patch/scales.cuh"
#include "mxkern/numerics/scheme.h"

namespace mxkern::kernels {

// Of the counted blocks of a line: the largest scale, and how far the smallest lies below 255; 0
// where none counts.
struct LineExtremes {
  std::uint32_t largest, below;

  __device__ __forceinline__ unsigned spread() const {
    return below == 0 ? 0u : largest - (255u - below);
  }
};

// Instead of the scale of a block of zeros, which counts for nothing. Blocks of 8-bit floats have
// no scale as large as this, so that it only marks them.
inline constexpr unsigned zeros_byte = E8M0::nan_byte - 1u;

// x in MXFP8 E4M3. Its rows start on 16 bytes and have a multiple of 8 elements of 16 bits. The
// grid has a thread block a tile: across, down, matrix.
struct BothParameters {
  const void* x;
  std::int64_t batch_stride, row_stride;
  std::int64_t rows, columns;
  E8M0Rule rule;
  std::uint32_t* scales;   // BothTiles::scale_words, in the order of the grid
  LineExtremes* extremes;  // BothTiles::extreme_words
};

// Where a tile lies.
struct BothTile {
  static constexpr int extent = BothTiles::extent;
  std::int64_t batch;
  int down, across;

  // In the order of the grid, or backwards.
  __device__ __forceinline__ static BothTile of(bool backwards) {
    const auto at = [&](unsigned block, unsigned blocks) {
      return static_cast<int>(backwards ? blocks - 1 - block : block);
    };
    return {at(blockIdx.z, gridDim.z), at(blockIdx.y, gridDim.y), at(blockIdx.x, gridDim.x)};
  }

  __device__ __forceinline__ std::int64_t row() const { return std::int64_t{down} * extent; }
  __device__ __forceinline__ std::int64_t column() const { return std::int64_t{across} * extent; }

  // The place of this thread's line among those of all tiles, and of all matrices.
  __device__ __forceinline__ std::int64_t scale_word() const {
    const std::int64_t tile = (batch * gridDim.y + down) * gridDim.x + across;
    return tile * BothTiles::lines + threadIdx.x;
  }
  __device__ __forceinline__ std::int64_t line() const {
    const BothTiles tiles = {0, gridDim.y, gridDim.x};
    const auto thread = static_cast<int>(threadIdx.x);
    const std::int64_t in_matrix =
        thread < extent ? row() + thread : tiles.down * extent + column() + thread - extent;
    return batch * tiles.matrix_lines() + in_matrix;
  }

  // How many of its lines exist, of so many from its first one on.
  __device__ __forceinline__ static int present(std::int64_t lines) {
    return static_cast<int>(lower_of<std::int64_t>(lines, extent));
  }

  // This lane's patch of x: `load` gives an octet of an address if it exists, and zeros else.
  template <class T, class Load>
  __device__ __forceinline__ void load(const BothParameters& p, PatchElements<T>& patch,
                                       const Load& load) const {
    const std::int64_t first_row = row() + patch_row(), first_column = column() + patch_column();
    const T* from = static_cast<const T*>(p.x) + batch * p.batch_stride + first_row * p.row_stride +
                    first_column;
    const int left = first_column < p.columns ? present(p.rows - first_row) : 0;
#pragma unroll
    for (int i = 0; i < patch_extent; ++i) {
      patch.raw[i] = load(from, i < left);
      from += p.row_stride;
    }
  }
};

// Thread blocks have a thread for each line of a tile.
static_assert(BothTiles::extent == tile_extent && BothTiles::lines == patch_threads);

inline constexpr int both_scales_blocks = 4;  // a multiprocessor

template <class T>
__global__ void __launch_bounds__(patch_threads, both_scales_blocks)
    both_scales_kernel(const __grid_constant__ BothParameters p) {
  using S = MxFp8E4M3;
  constexpr int blocks = BothTiles::extent / S::block;
  static_assert(blocks == 4 && SharedScales<S>::rows == 1);
  __shared__ std::uint32_t lines[BothTiles::lines];
  auto* bytes = reinterpret_cast<std::uint8_t*>(lines);
  const BothTile tile = BothTile::of(false);
  wait_at_start(Follows::behind);
  PatchElements<T> patch;
  tile.load(p, patch, [](const T* from, bool exists) {
    RawOctet<T> raw = {};
    if (exists) raw = load_octet(from);
    return raw;
  });
  PackedAmax<T> rows[2][4], pairs[4];
  patch.find_amax(rows, pairs);
  const BlockScaler<S> scaler{p.rule};
  const auto byte_of = [](std::uint8_t byte, std::uint32_t amax) {
    return amax == 0 ? static_cast<std::uint8_t>(zeros_byte) : byte;
  };
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const SharedScales<S> scales(rows[half], scaler);
    const int row = patch_row() + 4 * half + SharedScales<S>::row(0);
    bytes[row * blocks + patch_column() / S::block] = byte_of(scales.byte[0], scales.amax[0]);
  }
  const PatchColumnScales<S> columns(pairs, scaler);
#pragma unroll
  for (int k = 0; k < PatchColumnScales<S>::count; ++k) {
    const int column = BothTiles::extent + patch_column() + PatchColumnScales<S>::column(k);
    bytes[column * blocks + patch_row() / S::block] = byte_of(columns.byte[k], columns.amax[k]);
  }
  __syncthreads();
  const std::uint32_t word = lines[threadIdx.x];
  p.scales[tile.scale_word()] = word;
  LineExtremes found = {0, 0};
#pragma unroll
  for (int i = 0; i < blocks; ++i) {
    const unsigned byte = word >> 8 * i & 0xFFu;
    if (byte >= zeros_byte) continue;
    found.largest = max(found.largest, byte);
    found.below = max(found.below, 255u - byte);
  }
  if (found.below == 0) return;
  LineExtremes& all = p.extremes[tile.line()];
  atomicMax(&all.largest, found.largest);
  atomicMax(&all.below, found.below);
}

}  // namespace mxkern::kernels
