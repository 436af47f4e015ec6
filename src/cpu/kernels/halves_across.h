// cpu/kernels/halves_across.h: encode_halves for lines that lie across memory, a line a lane.
// Only files in cpu/instances/ may include it.
#pragma once

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

// Encodes one block of each of half_lanes lines. False where one of them takes another way; nothing
// is written then.
template <class S>
[[gnu::always_inline]] inline bool encode_halves_across(const bfloat16* x, std::int64_t stride,
                                                        const std::uint32_t* amax,
                                                        const float* multipliers,
                                                        std::uint8_t* codes,
                                                        std::int64_t code_stride) {
  constexpr int bits = S::Format::bits;
  // Codes that fill whole words.
  constexpr int elements = bits == 8 ? 2 : bits == 4 ? 4 : 8;
  constexpr int filled = elements * bits / 16;
  const Halves fields = multiplier_fields(amax, multipliers);
  const Halves beyond =
      difference_from_zero(fields - std::uint16_t{1}, all_halves(largest_half_field - 1));
  if (!are_zeros(beyond)) return false;
  HalfEncoder<typename S::Format> encode((all_halves(largest_half_field) - fields) << 7);

  Halves halves[2 * bits];
  for (int w = 0; w < 2 * bits; w += filled) {
    Halves fill[filled + 1] = {};
#pragma GCC unroll 8
    for (int i = 0; i < elements; ++i, x += stride) {
      append_half<bits>(fill, i, encode(load_vector<Halves>(x)));
    }
    for (int i = 0; i < filled; ++i) halves[w + i] = fill[i];
  }
  if (!encode.succeeded()) return false;

  BitLanes low[bits];
  BitLanes high[bits];
  for (int w = 0; w < bits; ++w) {
    low[w] = BitLanes(interleave_quarters<0>(halves[2 * w], halves[2 * w + 1]));
    high[w] = BitLanes(interleave_quarters<1>(halves[2 * w], halves[2 * w + 1]));
  }
  store_lines(low, {0, 1, 8}, codes, code_stride);
  store_lines(high, {4, 1, 8}, codes, code_stride);
  return true;
}

}  // namespace
}  // namespace mxkern::cpu

#endif
