// mxkern/kernels/gemm/hopper/row_scales.cuh: block scales of rows that a product decodes, and the
// largest of each row.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/row_scale_words.cuh"
#include "mxkern/numerics/scale_format.h"
#include "mxkern/tensor/scale_layout.h"

namespace mxkern::kernels {

// gemm/hopper/upcast.cuh takes codes as bfloat16 2^120 times smaller and multiplies them by powers
// of two, of which a row's largest scale becomes 2^127, the largest there is.
inline constexpr int decoded_shift = 120, largest_multiplier = 127;

// E8M0 scales of a left operand, of which four of a row are adjacent and start on four bytes; less
// than 2^32 in all. Its matrices are those of the product.
struct LeftScales {
  const std::uint8_t* scales;
  std::int64_t rows;          // of a matrix
  std::uint32_t batch_bytes;  // from one to the next
  int blocks;                 // of a row
  int step;                   // bytes from four scales of a row to the next four

  // Where a row's scales begin. Rows behind the last one are taken as it is.
  __device__ __forceinline__ const std::uint8_t* row(std::int64_t row, int batch) const {
    const auto at = static_cast<std::uint32_t>(row < rows ? row : rows - 1);
    const std::uint32_t matrix = static_cast<std::uint32_t>(batch) * batch_bytes;
    constexpr auto tile = static_cast<std::uint32_t>(ScaleIndex::tile_blocks);
    auto stored = static_cast<std::uint32_t>(blocks);
    if (step != ScaleIndex::tile_blocks) stored = (stored + tile - 1) / tile * tile;
    return scales + (matrix + begin_of_scales(at, stored, step));
  }

  // Four of a row's scales, from a block on that is a multiple of four, and how many of them there
  // are.
  __device__ __forceinline__ const std::uint8_t* four(const std::uint8_t* row, int block) const {
    return row + static_cast<std::uint32_t>(block / ScaleIndex::tile_blocks * step);
  }
  __device__ __forceinline__ int bytes_of_four(int block) const {
    return min(max(blocks - block, 0), 4);
  }
};

// What a row is decoded with: its largest scale.
struct LargestScale {
  std::uint8_t byte;

  // Then all of the row's outputs are NaN, whatever its other scales are.
  __device__ __forceinline__ bool is_nan() const { return byte == E8M0::nan_byte; }
  // The rows' sums are to be multiplied by two to this. NaN needs no exponent, which could be one
  // that has the whole tile finished in another way.
  __device__ __forceinline__ int exponent() const {
    return is_nan() ? 0 : byte - E8M0::bias + decoded_shift - largest_multiplier;
  }
  // What makes a block's scale the exponent field of its multiplier, in both halves of a word. A
  // scale of 0 under one of 254 gives zero instead of 2^-127, as do products with that.
  __device__ __forceinline__ std::uint32_t field_offsets() const {
    return static_cast<std::uint32_t>(largest_multiplier + bfloat16_bias - byte) *
           (0x00010001u << bfloat16_mantissa);
  }

 private:
  static constexpr int bfloat16_bias = 127, bfloat16_mantissa = 7;
};

// The rows of a tile that a warp decodes, 16 of them. A thread block knows all of its tiles before
// it starts with the first one: beside products each instruction of another warp costs a clock.
struct alignas(16) DecodedRows {
  static constexpr int count = 16, most_tiles = 64;
  // Whether these tiles, found in pairs, have room, and one behind them that does not exist.
  static constexpr bool have_room(std::int64_t tiles) { return tiles + tiles % 2 < most_tiles; }

  static constexpr int copied_bytes = count * 8;  // scales of four steps

  LargestScale largest[count];
  int row, batch, first_step;
  int exists;
};

// The multipliers of four blocks of a row as bfloat16, two in a word; any where a scale is NaN.
__device__ __forceinline__ void multipliers_of(std::uint32_t (&multipliers)[2],
                                               std::uint32_t scales, std::uint32_t field_offsets) {
  multipliers[0] = __byte_perm(scales, 0, 0x4140) * 128 + field_offsets;
  multipliers[1] = __byte_perm(scales, 0, 0x4342) * 128 + field_offsets;
}

// A warp: the largest scales of its rows of two tiles, eight lanes a row.
__device__ __forceinline__ void find_largest_scales(DecodedRows (&tiles)[2],
                                                    const LeftScales& left) {
  constexpr int lanes = 8, at_a_time = 32 / lanes, rows = DecodedRows::count / at_a_time;
  const int lane = threadIdx.x % 32, own = lane / lanes, rank = lane % lanes;
  const std::uint8_t* row[2][rows];
  // The largest of the upper and of the lower bytes of halves, each in its upper byte.
  std::uint32_t upper[2][rows] = {}, lower[2][rows] = {};
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      row[tile][i] = left.row(tiles[tile].row + i * at_a_time + own, tiles[tile].batch);
    }
  }
#pragma unroll 2
  for (int block = rank * 4; block < left.blocks; block += lanes * 4) {
    std::uint32_t words[2][rows];
    const int behind = 4 - left.bytes_of_four(block);
#pragma unroll
    for (int i = 0; i < 2 * rows; ++i) {
      const std::uint8_t* at = left.four(row[i / rows][i % rows], block);
      words[i / rows][i % rows] = *reinterpret_cast<const std::uint32_t*>(at);
    }
#pragma unroll
    for (int i = 0; i < 2 * rows; ++i) {
      const std::uint32_t word = words[i / rows][i % rows] << (8 * behind);
      std::uint32_t& high = upper[i / rows][i % rows];
      std::uint32_t& low = lower[i / rows][i % rows];
      high = __vmaxu2(high, word);
      low = __vmaxu2(low, word << 8);
    }
  }
#pragma unroll
  for (int i = 0; i < 2 * rows; ++i) {
    std::uint32_t largest = __vmaxu2(upper[i / rows][i % rows], lower[i / rows][i % rows]);
    largest = __vmaxu2(largest, largest << 16);
#pragma unroll
    for (int other = 1; other < lanes; other *= 2) {
      largest = __vmaxu2(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, other));
    }
    if (rank == 0) {
      tiles[i / rows].largest[i % rows * at_a_time + own].byte =
          static_cast<std::uint8_t>(largest >> 24);
    }
  }
}

}  // namespace mxkern::kernels
