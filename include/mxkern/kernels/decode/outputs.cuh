// mxkern/kernels/decode/outputs.cuh: rows of weights that take more than sums of products, and
// outputs to memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/core/dtype.h"
#include "mxkern/kernels/decode/interleaved.h"
#include "mxkern/kernels/gemm/common_factor.cuh"
#include "mxkern/kernels/decode/upcast.cuh"
#include "mxkern/kernels/device/runtime_dtype.cuh"
#include "mxkern/numerics/codec.h"

namespace mxkern::kernels::few {

// An element of reordered weights: its code, and its block's scale.
struct ReorderedElement {
  std::uint32_t code;
  std::uint8_t scale;
};
template <class K>
__device__ __forceinline__ ReorderedElement element_at(const DecodeParameters& p,
                                                       const std::uint8_t* weights,
                                                       std::int64_t row, std::int64_t column) {
  using Format = typename K::Format;
  using Bits = DecodeBits<Format>;
  const std::uint8_t* tile = weights + p.layout.tile_offset(row / DecodeLayout::tile_rows,
                                                            column / DecodeLayout::tile_columns);
  const int in_tile = static_cast<int>(column % DecodeLayout::tile_columns);
  const int row_in_tile = static_cast<int>(row % DecodeLayout::tile_rows);
  const DecodePlace place = p.layout.place(row_in_tile, in_tile);
  std::uint32_t words[Bits::words];
  for (int i = 0; i < Bits::words; ++i) {
    words[i] = *reinterpret_cast<const std::uint32_t*>(
        tile + p.layout.word_offset(place.column_block, place.lane,
                                    place.pair / Bits::pairs * Bits::words + i));
  }
  std::uint32_t bits = 0;
#pragma unroll
  for (int pair = 0; pair < Bits::pairs; ++pair) {
    if (place.pair % Bits::pairs == pair) bits = get_pair<Format>(words, pair);
  }
  const std::uint32_t code = gather_code<Format>(bits >> (16 * place.half) & 0xFFFFu);
  return {code, tile[p.layout.scale_offset(row_in_tile, in_tile / K::Scheme::block)]};
}

// Whether tokens are FP8 under a power of two each, and the exponents of a row of weights belong to
// those that its outputs lack.
template <class K>
inline constexpr bool is_folded = false;
template <class K>
requires requires { K::is_folded; }
inline constexpr bool is_folded<K> = K::is_folded;

template <class K>
__device__ __forceinline__ float token_at(const std::uint8_t* x_row, std::int64_t column) {
  if constexpr (is_folded<K>) return decode<E4M3>(x_row[interleaved_column(column)]);
  const auto element = *reinterpret_cast<const std::uint16_t*>(x_row + 2 * column);
  return K::is_half ? to_float(float16{element}) : to_float(bfloat16{element});
}

// The element-by-element product of a row that is not ordinary.
template <class K>
__device__ __noinline__ float multiply_special(const DecodeParameters& p,
                                               const std::uint8_t* weights,
                                               const std::uint8_t* x_row, std::int64_t row) {
  float sum = 0.0f;
  for (std::int64_t column = 0; column < p.layout.columns; ++column) {
    const ReorderedElement element = element_at<K>(p, weights, row, column);
    const float scale = decode_reordered_scale<typename K::Scheme>(element.scale);
    const float token = token_at<K>(x_row, column);
    const auto code = static_cast<std::uint8_t>(element.code);
    sum = fmaf(decode<typename K::Format>(code) * scale, token, sum);
  }
  return sum;
}

// The power of two that a token's outputs lack, beside that of the factor.
__device__ __forceinline__ int exponent_of(const DecodeParameters& p, std::int64_t batch, int token,
                                           const CommonFactor& factor) {
  if (p.x_exponents == nullptr) return factor.exponent;
  return factor.exponent + p.x_exponents[batch * p.tokens + token];
}

// value * fraction * 2^exponent, in three steps, as the power may be beyond float32 alone.
struct ThirdsOfPower {
  float first, last;

  __device__ __forceinline__ explicit ThirdsOfPower(int exponent) {
    constexpr int most = 375;  // from the smallest float beyond the largest one, and back
    exponent = exponent < -most ? -most : exponent > most ? most : exponent;
    const int third = exponent / 3;
    first = float32::exp2(third), last = float32::exp2(exponent - 2 * third);
  }
  __device__ __forceinline__ float times(float value, float fraction) const {
    return value * first * fraction * first * last;
  }
};

// The same in one step where the power is a normal float32.
__device__ __forceinline__ float times_power(float value, float fraction, int exponent) {
  if (static_cast<unsigned>(exponent + 126) > 252u) {
    return ThirdsOfPower(exponent).times(value, fraction);
  }
  return value * fraction * float_of(static_cast<std::uint32_t>(exponent + 127) << 23);
}

// Four outputs but for what is added to them: under a factor, and under the power of two of their
// token.
__device__ __forceinline__ void scale_four(const DecodeParameters& p, std::int64_t batch, int token,
                                           const CommonFactor& factor, float (&value)[4]) {
  const int exponent = exponent_of(p, batch, token, factor);
  if (exponent == 0) {
#pragma unroll
    for (float& v : value) v *= factor.fraction;
    return;
  }
  const ThirdsOfPower power(exponent);
#pragma unroll
  for (float& v : value) v = power.times(v, factor.fraction);
}

// Two outputs in 16 bits, the first one in the low half.
template <class T>
__device__ __forceinline__ std::uint32_t round_pair(float low, float high) {
  std::uint32_t pair;
  if constexpr (std::is_same_v<T, bfloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

// Four adjacent outputs, in one store, of which the compiler would make two or four.
__device__ __forceinline__ void store_whole(float* to, const float (&v)[4]) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(v[0]), "f"(v[1]),
               "f"(v[2]), "f"(v[3])
               : "memory");
}
__device__ __forceinline__ void store_pairs(void* to, std::uint32_t first, std::uint32_t second) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(first), "r"(second) : "memory");
}
template <class T>
__device__ __forceinline__ void store_whole(T* to, const float (&v)[4]) {
  store_pairs(to, round_pair<T>(v[0], v[1]), round_pair<T>(v[2], v[3]));
}

// The same where only `count` exist, or they are not aligned.
template <class T>
__device__ __forceinline__ void store_four(T* to, const float (&value)[4], std::int64_t count) {
  if (count >= 4 && reinterpret_cast<std::uintptr_t>(to) % (4 * sizeof(T)) == 0) {
    store_whole(to, value);
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (j >= count) break;
    if constexpr (sizeof(T) == 4) {
      to[j] = value[j];
    } else {
      to[j] = {static_cast<std::uint16_t>(round_pair<T>(value[j], 0.0f))};
    }
  }
}

}  // namespace mxkern::kernels::few
