// mxkern/kernels/reorder_weights.cuh: codes and scales to the layout of few-token products.
#pragma once

#include <cstdint>

#include "mxkern/tensor/block_scaled.h"
#include "mxkern/tensor/decode_layout.h"

namespace mxkern::kernels {

inline constexpr int reorder_threads = 512;

struct ReorderParameters {
  DecodeLayout layout;
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  ScaleIndex scale_index;
  std::int64_t code_row_bytes;
  std::uint8_t* to;
};

// A code, or zero outside of the matrix.
template <class Format>
__device__ __forceinline__ std::uint32_t code_at(const ReorderParameters& p,
                                                 const std::uint8_t* codes, std::int64_t row,
                                                 std::int64_t column) {
  if (row >= p.layout.rows || column >= p.layout.columns) return 0;
  const std::int64_t bit = column * Format::bits;
  const std::uint8_t* byte = codes + row * p.code_row_bytes + bit / 8;
  const int shift = static_cast<int>(bit % 8);
  std::uint32_t word = byte[0];
  if (shift + Format::bits > 8) word |= static_cast<std::uint32_t>(byte[1]) << 8;
  return word >> shift & ((1u << Format::bits) - 1);
}

template <class Format>
__device__ __forceinline__ RowKind kind_of_code(std::uint32_t code) {
  const std::uint32_t magnitude = code & ((1u << (Format::bits - 1)) - 1);
  if (!Format::has_nan || magnitude <= Format::max_code) return RowKind::ordinary;
  const bool infinite = Format::specials == Specials::ieee && magnitude == Format::max_code + 1u;
  return infinite ? RowKind::special : RowKind::poisoned;
}

// A thread block has 32 rows, whose kinds it collects; a warp writes 32 columns at a time.
template <class S>
__global__ void __launch_bounds__(reorder_threads) reorder_kernel(ReorderParameters p) {
  using Format = typename S::Format;
  using Bits = DecodeBits<Format>;
  constexpr int bits = Format::bits;
  constexpr std::uint32_t bits_mask = (1u << bits) - 1;
  const DecodeLayout& layout = p.layout;
  __shared__ std::uint32_t poisoned, special;
  if (threadIdx.x == 0) poisoned = special = 0;
  __syncthreads();
  const std::int64_t down = blockIdx.x, batch = blockIdx.y;
  const std::uint8_t* codes = p.codes + batch * layout.rows * p.code_row_bytes;
  const std::uint8_t* scales = p.scales + batch * p.scale_index.size();
  std::uint8_t* to = p.to + batch * layout.size();
  const int lane = threadIdx.x % 32;
  const std::int64_t blocks = layout.tiles_across() * DecodeLayout::tile_blocks;
  std::uint32_t poisoned_rows = 0, special_rows = 0;
  for (std::int64_t block = threadIdx.x / 32; block < blocks; block += reorder_threads / 32) {
    std::uint8_t* tile = to + layout.tile_offset(down, block / DecodeLayout::tile_blocks);
    const int column_block = static_cast<int>(block % DecodeLayout::tile_blocks);
    std::uint32_t words[bits] = {};
#pragma unroll
    for (int pair = 0; pair < 16; ++pair) {
      std::uint32_t spread = 0;
      for (int half = 0; half < 2; ++half) {
        const DecodePlace place{column_block, lane, pair, half};
        const int row = layout.row_of(place);
        const std::int64_t column = block / DecodeLayout::tile_blocks * DecodeLayout::tile_columns +
                                    layout.column_of(place);
        const std::uint32_t code = code_at<Format>(p, codes, down * 32 + row, column);
        const RowKind kind = kind_of_code<Format>(code);
        if (kind == RowKind::poisoned) poisoned_rows |= 1u << row;
        if (kind == RowKind::special) special_rows |= 1u << row;
        const bool is_zero = Format::is_integer ? code == 0 : (code & (bits_mask >> 1)) == 0;
        if (!S::has_tensor_scale && !is_zero &&
            scales[p.scale_index.offset(down * 32 + row, column / S::block)] == 0) {
          special_rows |= 1u << row;
        }
        spread |= spread_code<Format>(code) << (16 * half);
      }
      put_pair<Format>(words + pair / Bits::pairs * Bits::words, pair % Bits::pairs, spread);
    }
#pragma unroll
    for (int word = 0; word < bits; ++word) {
      *reinterpret_cast<std::uint32_t*>(tile + layout.word_offset(column_block, lane, word)) =
          words[word];
    }
    // A lane a row.
    for (int i = 0; i < DecodeLayout::block_columns / S::block; ++i) {
      const std::int64_t row = down * 32 + lane;
      const std::int64_t scale_block = block * (DecodeLayout::block_columns / S::block) + i;
      std::uint8_t scale = 0;
      if (row < layout.rows && scale_block < p.scale_index.blocks) {
        scale = scales[p.scale_index.offset(row, scale_block)];
        if constexpr (S::has_tensor_scale) scale &= 0x7F;
        if (scale == S::ScaleFormat::nan_byte) poisoned_rows |= 1u << lane;
      }
      constexpr int in_tile = DecodeLayout::tile_columns / S::block;
      tile[layout.scale_offset(lane, static_cast<int>(scale_block % in_tile))] = scale;
    }
  }
  if (poisoned_rows != 0) atomicOr(&poisoned, poisoned_rows);
  if (special_rows != 0) atomicOr(&special, special_rows);
  __syncthreads();
  std::uint8_t* kinds = to + layout.kinds_offset();
  if (threadIdx.x < 32) {
    const bool is_poisoned = (poisoned >> threadIdx.x & 1u) != 0;
    const bool is_special = (special >> threadIdx.x & 1u) != 0;
    kinds[down * 32 + threadIdx.x] = static_cast<std::uint8_t>(is_poisoned  ? RowKind::poisoned
                                                               : is_special ? RowKind::special
                                                                            : RowKind::ordinary);
  }
  // What pads them.
  const std::int64_t behind = layout.tiles_down() * 32 + threadIdx.x;
  if (down + 1 == layout.tiles_down() && behind < layout.size() - layout.kinds_offset()) {
    kinds[behind] = 0;
  }
}

}  // namespace mxkern::kernels
