// mxkern/kernels/gemm_sm90_decode.cuh: E4M3 codes in shared memory to bfloat16 in registers.
#pragma once

#include <cstdint>

#include "mxkern/kernels/gemm_sm90_config.cuh"
#include "mxkern/kernels/ptx/pairs.cuh"

namespace mxkern::kernels {

// Block scales of a left operand that is decoded while it is multiplied: see relative_scales.cuh.
struct LeftScales {
  const std::uint16_t* multipliers;
  std::int64_t row_elements;  // from one row to the next, a multiple of 8
  std::int64_t rows;          // of a matrix
};

// The left operand of a warpgroup's products, 64 rows, from the codes of a stage: 64 bytes a row
// with the 64-byte swizzle. A lane has two rows, and of 16 elements of K each two neighbours of the
// lower and of the upper half. The bits of an E4M3 code are those of a bfloat16 2^120 times
// smaller, subnormals included, so decoding is a shift, and one multiplication by the block's
// scale.
template <class Config>
struct DecodeSm90 {
  static constexpr int registers = 16;  // of a step
  using Left = std::uint32_t[registers];

  std::uint32_t places[4];  // of 16 elements each in stage 0, of the upper row
  const uint4* scales[2];   // a row's, of four steps each
  uint4 now[2], next[2];
  std::uint32_t carries[2];  // a bit of 0x08000800 is set where one of the row's codes was NaN

  __device__ __forceinline__ DecodeSm90(std::uint32_t base, int warpgroup) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int row = warpgroup * 64 + warp * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      places[i] = base + row * 64 + ((i ^ (row / 2 % 4)) << 4) + lane % 4 * 2;
    }
  }

  // The rows of another tile, from a step of K on, a multiple of four. Rows behind the last one are
  // decoded as it is, and never stored.
  __device__ __forceinline__ void begin(const LeftScales& left, std::int64_t first_row, int batch,
                                        int first_step, int warpgroup) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      std::int64_t row = first_row + warpgroup * 64 + warp * 16 + lane / 4 + i * 8;
      row = (row < left.rows ? row : left.rows - 1) + batch * left.rows;
      scales[i] = reinterpret_cast<const uint4*>(left.multipliers + row * left.row_elements) +
                  first_step / 4;
      next[i] = *scales[i];
      carries[i] = 0;
    }
  }

  // Takes the scales that were asked for, and asks for those of the four steps behind them.
  __device__ __forceinline__ void take_scales(bool has_more) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      now[i] = next[i];
      ++scales[i];
      if (has_more) next[i] = *scales[i];
    }
  }

  // The codes of a stage, which is the step of four that its scales are for.
  template <int Stage>
  __device__ __forceinline__ void decode(Left& left) {
    std::uint32_t pairs[registers];
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      // Registers of 16 elements of K: upper row, lower row, and again for the upper half of K.
      pairs[i] =
          load_pair(places[i / 4] + Stage * Config::stage_bytes + i % 2 * (8 * 64) + i % 4 / 2 * 8);
    }
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      const int row = i % 2;
      const std::uint32_t both = word(now[row], Stage % 4);
      const std::uint32_t scale = __byte_perm(both, 0, i / 8 == 0 ? 0x1010 : 0x3232);
      // Each code with its sign in the byte above, and four places up.
      const std::uint32_t shifted = ptx::signs_beside<0x9180>(pairs[i]) << 4;
      carries[row] |= (shifted + 0x00100010u) ^ shifted;
      left[i] = ptx::multiply_pair(shifted & 0x87F087F0u, scale);
    }
  }

  // Rows with a NaN code become NaN. All lanes of a warp call this.
  template <int Count>
  __device__ __forceinline__ void spread_nan(float (&sums)[Count]) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      std::uint32_t bits = carries[row];
      bits |= __shfl_xor_sync(0xFFFFFFFFu, bits, 1);
      bits |= __shfl_xor_sync(0xFFFFFFFFu, bits, 2);
      if ((bits & 0x08000800u) == 0) continue;
#pragma unroll
      for (int i = row * 2; i < Count; i += 4) sums[i] = sums[i + 1] = float_of(float32::nan_bits);
    }
  }

 private:
  __device__ __forceinline__ static std::uint32_t load_pair(std::uint32_t address) {
    std::uint16_t pair;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(pair) : "r"(address) : "memory");
    return pair;
  }
  __device__ __forceinline__ static std::uint32_t word(const uint4& words, int i) {
    return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
  }
};

}  // namespace mxkern::kernels
