// mxkern/kernels/operands/row_spreads.cuh: how far the block scales of rows lie apart, for a gate
// that asks about rows that are folded later.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/row_scale_words.cuh"
#include "mxkern/numerics/fold.h"
#include "mxkern/numerics/scale_format.h"

namespace mxkern::kernels {

// Rows of 8-bit codes with a multiple of 128 columns, that start on 16 bytes.
template <class Format>
struct RowSpreads {
  static constexpr unsigned everyone = 0xFFFFFFFFu;
  static constexpr unsigned limit = Fold<Format>::spread_limit;

  const std::uint8_t* codes;
  RowScaleWords scales;

  // By a warp. Beyond the limit it is what fold finds. Where that lies within, this does too, and
  // nobody asks how large it is: a block of zeros may have a part in it.
  __device__ __forceinline__ unsigned of(int row) const {
    const int lane = static_cast<int>(threadIdx.x % 32), words = scales.columns / 128;
    std::uint32_t high = 0, low = 0;
#pragma unroll 2
    for (int at = lane; at < words; at += 32) {
      const std::uint32_t word = word_of(row, at);
      high = __vmaxu2(high, more_than(word));
      low = __vmaxu2(low, halves_below(word));
    }
    const unsigned largest = largest_of_warp(high);
    const unsigned below = __reduce_max_sync(everyone, max(low & 0xFFFFu, low >> 16));
    if (below == 0) return 0;  // all scales are NaN
    const unsigned spread = largest - (255 - below);
    return spread <= limit ? spread : with_codes(row, largest);
  }

 private:
  __device__ __forceinline__ std::uint32_t word_of(int row, int at) const {
    return *reinterpret_cast<const std::uint32_t*>(scales.address(row, at));
  }
  // How far each of four scales lies below NaN, the most of two in each half.
  __device__ __forceinline__ static std::uint32_t halves_below(std::uint32_t word) {
    constexpr std::uint32_t bytes = 0x00FF00FFu;
    return __vmaxu2(~word & bytes, ~word >> 8 & bytes);
  }

  // The same, with a look at the codes of blocks beyond the limit.
  __device__ __forceinline__ unsigned with_codes(int row, unsigned largest) const {
    constexpr std::uint32_t magnitudes = Format::magnitude_mask * 0x01010101u;
    const int lane = static_cast<int>(threadIdx.x % 32), blocks = scales.columns / 32;
    const std::uint8_t* line = codes + std::int64_t{row} * scales.columns;
    unsigned spread = 0;
#pragma unroll 1
    for (int block = lane; block < blocks; block += 32) {
      const unsigned byte = word_of(row, block / 4) >> block % 4 * 8 & 0xFFu;
      if (byte == E8M0::nan_byte || largest - byte <= max(limit, spread)) continue;
      const auto* pieces = reinterpret_cast<const uint4*>(line + std::int64_t{block} * 32);
      const uint4 a = pieces[0], b = pieces[1];
      const std::uint32_t any = a.x | a.y | a.z | a.w | b.x | b.y | b.z | b.w;
      if ((any & magnitudes) != 0) spread = largest - byte;
    }
    return __reduce_max_sync(everyone, spread);
  }
};

}  // namespace mxkern::kernels
