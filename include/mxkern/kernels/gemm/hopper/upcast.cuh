// mxkern/kernels/gemm/hopper/upcast.cuh: E4M3 codes in shared memory to bfloat16 in registers.
#pragma once

#include <cstdint>

#include "mxkern/kernels/gemm/hopper/config.cuh"
#include "mxkern/kernels/gemm/hopper/row_scales.cuh"
#include "mxkern/kernels/ptx/copy_async.cuh"
#include "mxkern/kernels/ptx/pairs.cuh"

namespace mxkern::kernels {

// The left operand of a warpgroup's products, 64 rows, from the codes of a stage: 64 bytes a row
// with the 64-byte swizzle. A lane has two rows, and of 16 elements of K each two neighbours of the
// lower and of the upper half. The bits of an E4M3 code are those of a bfloat16 2^120 times
// smaller, subnormals included, so decoding is a shift, and one multiplication by the block's
// scale. Steps go on from tile to tile: scales of four steps are asked for while those ahead of
// them are in use, whichever tile they are of.
template <class Config>
struct DecodeSm90 {
  static constexpr int registers = 16;  // of a step
  using Left = std::uint32_t[registers];

  const LeftScales& left;
  const DecodedRows* rows;     // of this warp, of the tile that comes next
  std::uint32_t places[4];     // of 16 elements each in stage 0, of the upper row
  std::uint32_t copied;        // where a warp's scales of the next four steps come to
  const std::uint8_t* scales;  // of the row and the half of these that this lane copies
  int block;                   // the first one of them
  std::uint32_t now[2][2][2];  // multipliers of four steps of each row
  std::uint32_t field_offsets[2];
  std::uint32_t largest[2];  // of the row's codes before they are scaled, two magnitudes

  __device__ __forceinline__ DecodeSm90(const LeftScales& scales_of_left,
                                        const DecodedRows* first_rows, std::uint32_t base)
      : left(scales_of_left),
        rows(first_rows),
        copied(base + Config::copied_scales_offset + threadIdx.x / 32 * DecodedRows::copied_bytes) {
    const int row = static_cast<int>(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      places[i] = base + row * 64 + ((i ^ (row / 2 % 4)) << 4) + threadIdx.x % 4 * 2;
    }
  }

  // Goes to the scales of the next tile, if there is one.
  __device__ __forceinline__ bool find_next() {
    const int4 next = *reinterpret_cast<const int4*>(&rows->row);
    const int lane = threadIdx.x % 32;
    scales = left.row(next.x + lane / 2, next.y) + lane % 2 * left.step;
    block = next.z * 2;
    return next.w != 0;
  }

  // Asks for the scales of four steps, once those before were taken. Loaded to registers, they
  // would be waited for together with the codes that are loaded next.
  __device__ __forceinline__ void ask() {
    const int lane = threadIdx.x % 32;
    ptx::copy_async_4(copied + lane * 4, left.four(scales, block),
                      left.bytes_of_four(block + lane % 2 * 4));
    ptx::copy_async_commit();
  }

  __device__ __forceinline__ void take_scales() {
    ptx::copy_async_wait<0>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint2 words = load_two_words(copied + threadIdx.x % 32 / 4 * 8 + i * 64);
      multipliers_of(now[i][0], words.x, field_offsets[i]);
      multipliers_of(now[i][1], words.y, field_offsets[i]);
    }
    __syncwarp();
  }

  // Before scales of the next tile are taken; returns what became of the codes of the one ahead.
  __device__ __forceinline__ std::uint32_t begin() {
    const std::uint32_t nan_rows = nan_bits(largest[0]) | nan_bits(largest[1]) >> 1;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const LargestScale scale = rows->largest[threadIdx.x % 32 / 4 + i * 8];
      field_offsets[i] = scale.field_offsets();
      largest[i] = scale.is_nan() ? nan_pair : 0;
    }
    ++rows;
    return nan_rows;
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
      const std::uint32_t both = now[row][Stage / 2][Stage % 2];
      const std::uint32_t scale = __byte_perm(both, 0, i / 8 == 0 ? 0x1010 : 0x3232);
      // Each code with its sign in the byte above, and four places up.
      const std::uint32_t pair =
          ptx::signs_beside<0x9180>(pairs[i]) << 4 & (nan_pair | 0x80008000u);
      largest[row] = ptx::larger_magnitudes(largest[row], pair);
      left[i] = ptx::multiply_pair(pair, scale);
    }
  }

  // Rows with a NaN code become NaN: `nan_rows` is of begin(). All lanes of a warp call this.
  template <int Count>
  __device__ __forceinline__ static void spread_nan(float (&sums)[Count], std::uint32_t nan_rows) {
    if (!__any_sync(0xFFFFFFFFu, nan_rows != 0)) return;
    nan_rows |= __shfl_xor_sync(0xFFFFFFFFu, nan_rows, 1);
    nan_rows |= __shfl_xor_sync(0xFFFFFFFFu, nan_rows, 2);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      if ((nan_rows & 0x08000800u >> row) == 0) continue;
#pragma unroll
      for (int i = row * 2; i < Count; i += 4) sums[i] = sums[i + 1] = float_of(float32::nan_bits);
    }
  }

 private:
  static constexpr std::uint32_t nan_pair = 0x07F007F0u;

  // A bit of 0x08000800 is set where the largest magnitude is NaN's.
  __device__ __forceinline__ static std::uint32_t nan_bits(std::uint32_t magnitudes) {
    return ((magnitudes & nan_pair) + 0x00100010u) & 0x08000800u;
  }
  __device__ __forceinline__ static uint2 load_two_words(std::uint32_t address) {
    uint2 words;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(words.x), "=r"(words.y)
                 : "r"(address)
                 : "memory");
    return words;
  }
  __device__ __forceinline__ static std::uint32_t load_pair(std::uint32_t address) {
    std::uint16_t pair;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(pair) : "r"(address) : "memory");
    return pair;
  }
};

}  // namespace mxkern::kernels
