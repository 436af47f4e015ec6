// cpu/kernels/halves_across.h: encode_halves and encode_fp4 for lines that lie across memory, a
// line a lane. Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/encode_fp4.h"
#include "cpu/kernels/encode_halves.h"
#include "cpu/kernels/word_lanes.h"

#if defined(__AVX2__)

namespace mxkern::cpu {
namespace {

// Appends code number `i` of Bits bits to the words of 16 bits that began with code 0.
template <int Bits>
[[gnu::always_inline]] inline void append_half(Halves* words, int i, Halves code) {
  const int word = i * Bits / 16;
  const int position = i * Bits % 16;
  words[word] |= code << position;
  if (position + Bits > 16) words[word + 1] = code >> (16 - position);
}

// The exponent fields of the multipliers of half_lanes blocks; of a block of zeros, which may have
// any, one that is in reach.
[[gnu::always_inline]] inline Halves multiplier_fields(const std::uint32_t* amax,
                                                       const float* multipliers) {
  const auto fields = [&](int i) __attribute__((always_inline)) {
    const auto bits = load_vector<BitLanes>(multipliers + i);
    const auto some = load_vector<BitLanes>(amax + i) != 0u;
    return some ? bits >> float32::mantissa_bits
                : broadcast<BitLanes>(std::uint32_t{float32::bias});
  };
  const BitLanes low = fields(0), high = fields(lane_count);
#if defined(__AVX512F__)
  const __m512i both = _mm512_castsi256_si512(_mm512_cvtepi32_epi16(__m512i(low)));
  return Halves(_mm512_inserti64x4(both, _mm512_cvtepi32_epi16(__m512i(high)), 1));
#else
  const __m256i packed = _mm256_packus_epi32(__m256i(low), __m256i(high));
  return Halves(_mm256_permute4x64_epi64(packed, 0b11011000));
#endif
}

// The codes of 32 elements of half_lanes lines, as encode(element) gives them, in words of 16 bits.
template <int bits, class Encode>
[[gnu::always_inline]] inline void fill_halves(Halves (&halves)[2 * bits], Encode&& encode) {
  // Codes that fill whole words.
  constexpr int elements = bits == 8 ? 2 : bits == 4 ? 4 : 8;
  constexpr int filled = elements * bits / 16;
  for (int w = 0; w < 2 * bits; w += filled) {
    Halves fill[filled + 1] = {};
    const int first = w / filled * elements;
#pragma GCC unroll 8
    for (int i = 0; i < elements; ++i) append_half<bits>(fill, i, encode(first + i));
    for (int i = 0; i < filled; ++i) halves[w + i] = fill[i];
  }
}

// Writes them, a line behind the other.
template <int bits>
[[gnu::always_inline]] inline void store_halves_across(const Halves (&halves)[2 * bits],
                                                       std::uint8_t* codes,
                                                       std::int64_t code_stride) {
  BitLanes low[bits];
  BitLanes high[bits];
  for (int w = 0; w < bits; ++w) {
    low[w] = BitLanes(interleave_quarters<0>(halves[2 * w], halves[2 * w + 1]));
    high[w] = BitLanes(interleave_quarters<1>(halves[2 * w], halves[2 * w + 1]));
  }
  store_lines(low, {0, 1, 8}, codes, code_stride);
  store_lines(high, {4, 1, 8}, codes, code_stride);
}

// Encodes one block of each of half_lanes lines. False where one of them takes another way; nothing
// is written then.
template <class S>
[[gnu::always_inline]] inline bool encode_halves_across(const bfloat16* x, std::int64_t stride,
                                                        const std::uint32_t* amax,
                                                        const float* multipliers,
                                                        std::uint8_t* codes,
                                                        std::int64_t code_stride) {
  constexpr int bits = S::Format::bits;
  const Halves fields = multiplier_fields(amax, multipliers);
  const Halves beyond =
      difference_from_zero(fields - std::uint16_t{1}, all_halves(largest_half_field - 1));
  if (!are_zeros(beyond)) return false;
  HalfEncoder<typename S::Format> encode((all_halves(largest_half_field) - fields) << 7);

  Halves halves[2 * bits];
  fill_halves<bits>(
      halves, [&](int element) __attribute__((always_inline)) {
        return encode(load_vector<Halves>(x + element * stride));
      });
  if (!encode.succeeded()) return false;
  store_halves_across<bits>(halves, codes, code_stride);
  return true;
}

#if defined(__AVX512F__)
// Encodes two blocks of each of half_lanes lines under any multipliers, those of the second blocks
// half_lanes behind those of the first.
template <class S>
[[gnu::always_inline]] inline void encode_fp4_across(const bfloat16* x, std::int64_t stride,
                                                     const float* multipliers, std::uint8_t* codes,
                                                     std::int64_t code_stride) {
  static_assert(S::block == 16 && is_fp4<typename S::Format>);
  // Of even lines and of odd ones.
  FloatPairs factors[2];
  for (int block = 0; block < 2; ++block) {
    const float* from = multipliers + block * half_lanes;
    const auto low = load_lanes(from), high = load_lanes(from + lane_count);
    factors[block] = {__builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22,
                                              24, 26, 28, 30),
                      __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23,
                                              25, 27, 29, 31)};
  }
  Halves halves[8];
  fill_halves<4>(
      halves, [&](int element) __attribute__((always_inline)) {
        const FloatPairs values = load_pairs(x + element * stride);
        const FloatPairs& factor = factors[element / S::block];
        return encode_fp4({values.even * factor.even, values.odd * factor.odd});
      });
  store_halves_across<4>(halves, codes, code_stride);
}
#endif

}  // namespace
}  // namespace mxkern::cpu

#endif
