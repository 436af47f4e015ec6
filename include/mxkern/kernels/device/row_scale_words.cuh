// mxkern/kernels/device/row_scale_words.cuh: E8M0 scales of a matrix's rows, four of them at a
// time.
#pragma once

#include <cstdint>

#include "mxkern/tensor/scale_layout.h"

namespace mxkern::kernels {

// Where a row's first four scales lie, `step` bytes ahead of the next four. blocks: of a row,
// padding included.
template <class Row, class Blocks>
__device__ __forceinline__ Blocks begin_of_scales(Row row, Blocks blocks, int step) {
  constexpr Row tile_rows = ScaleIndex::tile_rows;
  if (step == ScaleIndex::tile_blocks) return row * blocks;
  return row / tile_rows * tile_rows * blocks + row % 32 * 16 + row % tile_rows / 32 * 4;
}

// Scales of one matrix with a multiple of 128 columns, of which four of a row start on 4 bytes.
struct RowScaleWords {
  const std::uint8_t* scales;
  int columns;
  int step;  // bytes from four scales of a row to the next: more than 4 where swizzled

  // Of the `word`th four of a row.
  __device__ __forceinline__ const std::uint8_t* address(int row, int word) const {
    return scales + begin_of_scales(row, std::int64_t{columns / 32}, step) + word * step;
  }
};

// One more than each of four scales, the largest of two in each half; what is NaN is 0.
__device__ __forceinline__ std::uint32_t more_than(std::uint32_t scales) {
  constexpr std::uint32_t ones = 0x00010001u, bytes = 0x00FF00FFu;
  return __vmaxu2(((scales & bytes) + ones) & bytes, ((scales >> 8 & bytes) + ones) & bytes);
}

// The largest scale that is not NaN, from one more than each lane's in halves, as more_than has
// them.
__device__ __forceinline__ unsigned largest_of_warp(std::uint32_t pairs) {
  const unsigned found = __reduce_max_sync(0xFFFFFFFFu, max(pairs & 0xFFFFu, pairs >> 16));
  return found == 0 ? 0 : found - 1;
}

}  // namespace mxkern::kernels
