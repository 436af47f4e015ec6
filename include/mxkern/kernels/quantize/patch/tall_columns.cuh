// mxkern/kernels/quantize/patch/tall_columns.cuh: NVFP4 along transformed columns: 16 rows x 4
// columns a lane.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize/patch/halves.cuh"
#include "mxkern/numerics/hadamard.h"

namespace mxkern::kernels {

// Two lanes that have patches of 8 x 8 elements above one another take half of their columns each:
// whole blocks of 16 rows, so that a transform of 16 needs no other lane.
template <class T>
struct TallPatch {
  static constexpr int rows = 16;
  static constexpr int pairs = 2;
  static constexpr int columns = 2 * pairs;
  using S = NvFp4;
  std::uint32_t word[pairs][rows];

  __device__ __forceinline__ static int side() { return patch_down() % 2; }
  // The first column and row of the lane in the tile.
  __device__ __forceinline__ static int column() { return patch_column() + 2 * pairs * side(); }
  __device__ __forceinline__ static int row() { return patch_row() / rows * rows; }

  // Four columns of one row, from the octets of a warp's lanes, [row of the patch][shared_lane].
  using Octets = uint4[patch_extent][patch_threads];
  __device__ __forceinline__ static uint2 of_row(const Octets& octets, int i) {
    const unsigned thread = (threadIdx.x & ~4u) | (i < patch_extent ? 0u : 4u);
    const uint4& octet = octets[i % patch_extent][shared_lane(thread)];
    return reinterpret_cast<const uint2*>(&octet)[side()];
  }

  __device__ __forceinline__ void load(const Octets& octets) {
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const uint2 own = of_row(octets, i);
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

  // x := (x * sign) H / 4, rounded. `factors`: signs / 4. Elements' quarters and their sums are
  // float32 values, so that dividing first makes no difference, unless a sum overflows.
  static constexpr float sums_fit_below = 0x1p123f;  // 16 such elements' sum is finite
  __device__ __forceinline__ void transform(const float* factors) {
#pragma unroll
    for (int pair = 0; pair < pairs; ++pair) {
      float v[2][rows];
#pragma unroll
      for (int i = 0; i < rows; i += 2) {
        const float2 upper = unpack_pair<T>(word[pair][i]);
        const float2 lower = unpack_pair<T>(word[pair][i + 1]);
        const auto begin = [&](float(&side)[rows], float a, float b) {
          const float own = __fmul_rn(a, factors[i]);
          side[i] = __fmaf_rn(b, factors[i + 1], own);
          side[i + 1] = __fmaf_rn(b, -factors[i + 1], own);
        };
        begin(v[0], upper.x, lower.x);
        begin(v[1], upper.y, lower.y);
      }
      hadamard_butterflies<2>(v[0]);
      hadamard_butterflies<2>(v[1]);
#pragma unroll
      for (int i = 0; i < rows; ++i) word[pair][i] = pack_pair<T>(v[0][i], v[1][i]);
    }
  }

  // The same of any elements. `signs`: what flips them.
  __device__ __forceinline__ void transform_any(const std::uint32_t* signs) {
    constexpr float norm = hadamard_norm(rows);
#pragma unroll
    for (int pair = 0; pair < pairs; ++pair) {
      float v[2][rows];
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        const float2 both = unpack_pair<T>(word[pair][i] ^ signs[i]);
        v[0][i] = both.x;
        v[1][i] = both.y;
      }
      hadamard_butterflies(v[0]);
      hadamard_butterflies(v[1]);
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        word[pair][i] = pack_pair<T>(__fmul_rn(v[0][i], norm), __fmul_rn(v[1][i], norm));
      }
    }
  }

  __device__ __forceinline__ void find_amax(std::uint32_t (&amax)[2 * pairs]) const {
#pragma unroll
    for (int pair = 0; pair < pairs; ++pair) {
      PackedAmax<T> largest = {0};
#pragma unroll
      for (int i = 0; i < rows; i += 2) {
        largest.bits = __vimax3_u16x2(largest.bits, magnitudes_of<T>(word[pair][i]),
                                      magnitudes_of<T>(word[pair][i + 1]));
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
        const float2 both = unpack_pair<T>(word[k / 2][8 * i + row]);
        v[row] = k % 2 == 0 ? both.x : both.y;
      }
      part[i] = static_cast<std::uint32_t>(
          quantize_octet<S, Rounding::nearest>(v, multiplier, true, no_words));
    }
    return make_uint2(part[0], part[1]);
  }

  // The same of all columns, by random words: octets of them, as they are of x.
  __device__ __forceinline__ void encode_random(const Octets& random,
                                                const float (&multipliers)[columns],
                                                uint2 (&codes)[columns]) const {
    using Format = S::Format;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      uint2 words[patch_extent];
#pragma unroll
      for (int i = 0; i < patch_extent; ++i) words[i] = of_row(random, part * patch_extent + i);
#pragma unroll
      for (int k = 0; k < columns; ++k) {
        std::uint32_t sum[patch_extent];
#pragma unroll
        for (int i = 0; i < patch_extent; ++i) {
          const float2 both = unpack_pair<T>(word[k / 2][part * patch_extent + i]);
          const float scaled = __fmul_rn(k % 2 == 0 ? both.x : both.y, multipliers[k]);
          sum[i] = ptx::add_fraction<Format>(scaled, k < 2 ? words[i].x : words[i].y, k % 2);
        }
        std::uint32_t octet = static_cast<std::uint32_t>(ptx::pack_nibbles<Format>(sum, true));
        asm volatile("" : "+r"(octet));  // before anybody asks whether it is wanted
        part == 0 ? codes[k].x = octet : codes[k].y = octet;
      }
    }
    constexpr auto poison = static_cast<std::uint32_t>(poison_octet<Format>);
#pragma unroll
    for (int k = 0; k < columns; ++k) {
      if (multipliers[k] < 0.0f) codes[k] = make_uint2(poison, poison);
    }
  }
};

}  // namespace mxkern::kernels
