// mxkern/kernels/quantize/patch/tall_columns.cuh: NVFP4 along transformed columns: 16 rows x 4
// columns a lane.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize/patch/halves.cuh"
#include "mxkern/numerics/hadamard.h"

namespace mxkern::kernels {

// Two lanes that have patches of 8 x 8 elements above one another take half of their columns each:
// whole blocks of 16 rows, so that a transform of 16 needs no other lane.
struct TallPatch {
  static constexpr int rows = 16;
  static constexpr int pairs = 2;
  using S = NvFp4;
  std::uint32_t word[pairs][rows];

  __device__ __forceinline__ static int side() { return patch_down() % 2; }
  // The first column and row of the lane in the tile.
  __device__ __forceinline__ static int column() { return patch_column() + 2 * pairs * side(); }
  __device__ __forceinline__ static int row() { return patch_row() / rows * rows; }

  // From the octets of a warp's lanes, [row of the patch][lane].
  __device__ __forceinline__ void load(const uint4 (&octets)[patch_extent][patch_threads]) {
    const unsigned upper = threadIdx.x & ~4u;
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const uint4& octet = octets[i % patch_extent][upper + i / patch_extent * 4];
      const uint2 own = reinterpret_cast<const uint2*>(&octet)[side()];
      word[0][i] = own.x;
      word[1][i] = own.y;
    }
  }

  // Keeps the compiler from working on the elements before this point.
  __device__ __forceinline__ void stay() {
#pragma unroll
    for (int pair = 0; pair < pairs; ++pair) {
#pragma unroll
      for (int i = 0; i < rows; ++i) asm volatile("" : "+r"(word[pair][i]));
    }
  }

  // x := (x * sign) H / sqrt(16), rounded.
  __device__ __forceinline__ void transform(const std::uint32_t* signs) {
    constexpr float norm = hadamard_norm(rows);
#pragma unroll
    for (int pair = 0; pair < pairs; ++pair) {
      float v[2][rows];
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        const std::uint32_t flipped = word[pair][i] ^ signs[i];
        v[0][i] = float_of(flipped << 16);
        v[1][i] = float_of(flipped & 0xFFFF0000u);
      }
      hadamard_butterflies(v[0]);
      hadamard_butterflies(v[1]);
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        word[pair][i] = pack_pair<bfloat16>(__fmul_rn(v[0][i], norm), __fmul_rn(v[1][i], norm));
      }
    }
  }

  __device__ __forceinline__ void find_amax(std::uint32_t (&amax)[2 * pairs]) const {
#pragma unroll
    for (int pair = 0; pair < pairs; ++pair) {
      PackedAmax<bfloat16> largest = {0};
#pragma unroll
      for (int i = 0; i < rows; i += 2) {
        largest.bits = __vimax3_u16x2(largest.bits, magnitudes_of<bfloat16>(word[pair][i]),
                                      magnitudes_of<bfloat16>(word[pair][i + 1]));
      }
      amax[2 * pair] = largest.half(0);
      amax[2 * pair + 1] = largest.half(1);
    }
  }

  // Codes of a pair of columns, in halves.
  __device__ __forceinline__ void encode(int pair, HalfFactors low, HalfFactors high,
                                         std::uint32_t factor, uint2 (&codes)[2]) const {
    std::uint32_t parts[2][2];
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      std::uint32_t halves[patch_extent], magnitudes[2], signs[2];
#pragma unroll
      for (int i = 0; i < patch_extent; ++i) {
        halves[i] = to_halves(word[pair][part * patch_extent + i], factor);
      }
      encode_half_columns(halves, low, high, magnitudes);
      column_signs(word[pair] + part * patch_extent, signs);
#pragma unroll
      for (int k = 0; k < 2; ++k) parts[k][part] = magnitudes[k] | signs[k];
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) codes[k] = make_uint2(parts[k][0], parts[k][1]);
  }

  // Codes of column k, any values.
  __device__ __forceinline__ uint2 encode_any(int k, float multiplier) const {
    const Philox4 no_words = {};
    std::uint32_t part[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float v[8];
#pragma unroll
      for (int row = 0; row < 8; ++row) {
        const std::uint32_t both = word[k / 2][8 * i + row];
        v[row] = float_of(k % 2 == 0 ? both << 16 : both & 0xFFFF0000u);
      }
      part[i] = static_cast<std::uint32_t>(
          quantize_octet<S, Rounding::nearest>(v, multiplier, true, no_words));
    }
    return make_uint2(part[0], part[1]);
  }
};

}  // namespace mxkern::kernels
