// cpu/kernels/code_lanes.h: codes between 32-bit lanes and packed bytes.
// Only files in cpu/instances/ may include it.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "cpu/kernels/lanes_memory.h"

namespace mxkern::cpu {
namespace {

// Codes travel in steps of as many elements as a vector register has bytes: four registers of
// lanes, one register of bytes.
inline constexpr int step_registers = 4;
inline constexpr int step_elements = step_registers * lane_count;

using StepBytes = std::uint8_t __attribute__((vector_size(step_elements)));
using StepHalves = std::uint16_t __attribute__((vector_size(step_elements)));
using HalfStepBytes = std::uint8_t __attribute__((vector_size(step_elements / 2)));
using HalfStepHalves = std::uint16_t __attribute__((vector_size(step_elements)));

#if defined(__AVX512VBMI__)
// Byte i of the result is byte source(i) of bytes; the pattern is a constant in memory.
template <class Source>
struct BytePattern {
  alignas(64) std::uint8_t order[64];
  constexpr explicit BytePattern(Source source) {
    for (int i = 0; i < 64; ++i) order[i] = static_cast<std::uint8_t>(source(i) & 63);
  }
};

template <class Source>
[[gnu::always_inline]] inline __m512i permute_bytes(__m512i bytes, Source) {
  static constexpr BytePattern<Source> pattern{Source{}};
  return _mm512_permutexvar_epi8(_mm512_load_si512(pattern.order), bytes);
}
#endif

// The low bytes of a step of lanes, in element order. Bits above the byte must be zero.
[[gnu::always_inline]] inline StepBytes narrow(const BitLanes (&codes)[step_registers]) {
#if defined(__AVX512VBMI__)
  const BitLanes merged = codes[0] | codes[1] << 8 | codes[2] << 16 | codes[3] << 24;
  return StepBytes(
      permute_bytes(__m512i(merged), [](int i) { return i % lane_count * 4 + i / lane_count; }));
#elif defined(__AVX2__)
  const __m256i low = _mm256_packus_epi32(__m256i(codes[0]), __m256i(codes[1]));
  const __m256i high = _mm256_packus_epi32(__m256i(codes[2]), __m256i(codes[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return StepBytes(_mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order));
#elif defined(__SSE2__)
  const __m128i low = _mm_packs_epi32(__m128i(codes[0]), __m128i(codes[1]));
  const __m128i high = _mm_packs_epi32(__m128i(codes[2]), __m128i(codes[3]));
  return StepBytes(_mm_packus_epi16(low, high));
#else
  StepBytes bytes;
  for (int i = 0; i < step_elements; ++i)
    bytes[i] = static_cast<std::uint8_t>(codes[i / lane_count][i % lane_count]);
  return bytes;
#endif
}

#if defined(__AVX2__)
// The same for lanes of pairs: the even and the odd codes of the first half of a step, then those
// of the second half.
[[gnu::always_inline]] inline StepBytes narrow_pairs(const BitLanes (&codes)[step_registers]) {
  const BitLanes merged = codes[0] | codes[1] << 8 | codes[2] << 16 | codes[3] << 24;
#if defined(__AVX512VBMI__)
  return StepBytes(permute_bytes(__m512i(merged), [](int i) {
    return i % (2 * lane_count) / 2 * 4 + i / (2 * lane_count) * 2 + i % 2;
  }));
#else
  const __m256i order = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
  const __m256i halves = _mm256_shuffle_epi8(__m256i(merged), order);
  return StepBytes(_mm256_permute4x64_epi64(halves, 0b11011000));
#endif
}
#endif

// The inverse of narrow: each byte in a lane of its own.
[[gnu::always_inline]] inline void widen(StepBytes bytes, BitLanes (&codes)[step_registers]) {
#if defined(__AVX512F__)
  codes[0] = BitLanes(_mm512_cvtepu8_epi32(_mm512_castsi512_si128(__m512i(bytes))));
  codes[1] = BitLanes(_mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(__m512i(bytes), 1)));
  codes[2] = BitLanes(_mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(__m512i(bytes), 2)));
  codes[3] = BitLanes(_mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(__m512i(bytes), 3)));
#elif defined(__AVX2__)
  const __m128i low = _mm256_castsi256_si128(__m256i(bytes));
  const __m128i high = _mm256_extracti128_si256(__m256i(bytes), 1);
  codes[0] = BitLanes(_mm256_cvtepu8_epi32(low));
  codes[1] = BitLanes(_mm256_cvtepu8_epi32(_mm_srli_si128(low, 8)));
  codes[2] = BitLanes(_mm256_cvtepu8_epi32(high));
  codes[3] = BitLanes(_mm256_cvtepu8_epi32(_mm_srli_si128(high, 8)));
#elif defined(__SSE2__)
  const __m128i zero = _mm_setzero_si128();
  const __m128i low = _mm_unpacklo_epi8(__m128i(bytes), zero);
  const __m128i high = _mm_unpackhi_epi8(__m128i(bytes), zero);
  codes[0] = BitLanes(_mm_unpacklo_epi16(low, zero));
  codes[1] = BitLanes(_mm_unpackhi_epi16(low, zero));
  codes[2] = BitLanes(_mm_unpacklo_epi16(high, zero));
  codes[3] = BitLanes(_mm_unpackhi_epi16(high, zero));
#else
  for (int i = 0; i < step_elements; ++i) codes[i / lane_count][i % lane_count] = bytes[i];
#endif
}

// Packs a step of codes of Bits bits, one a byte, to step_elements * Bits / 8 bytes. AVX2 joins
// neighbours by multiplying and adding: that is two instructions for four codes of 6 bits.
template <int Bits>
[[gnu::always_inline]] inline void store_codes(std::uint8_t* target, StepBytes codes) {
  if constexpr (Bits == 8) {
    store_vector(target, codes);
  } else if constexpr (Bits == 4) {
    const auto pairs = StepHalves(codes);
#if defined(__AVX2__) && !defined(__AVX512F__)
    const auto packed = StepHalves(_mm256_maddubs_epi16(__m256i(pairs), _mm256_set1_epi16(0x1001)));
#else
    const StepHalves packed = (pairs | pairs >> 4) & 0xFFu;
#endif
    store_vector(target, __builtin_convertvector(packed, HalfStepBytes));
  } else {
    static_assert(Bits == 6, "codes have 4, 6 or 8 bits");
    const auto four = BitLanes(codes);
#if defined(__AVX2__) && !defined(__AVX512F__)
    const __m256i pairs = _mm256_maddubs_epi16(__m256i(four), _mm256_set1_epi16(0x4001));
    const auto packed = BitLanes(_mm256_madd_epi16(pairs, _mm256_set1_epi32(0x10000001)));
#else
    const BitLanes packed =
        (four & 0x3Fu) | (four >> 2 & 0xFC0u) | (four >> 4 & 0x3F000u) | (four >> 6 & 0xFC0000u);
#endif
#if defined(__AVX512VBMI__)
    const __m512i bytes = permute_bytes(__m512i(packed), [](int i) { return i / 3 * 4 + i % 3; });
    store_vector(target, _mm512_castsi512_si256(bytes));
    store_vector(target + 32, _mm512_extracti32x4_epi32(bytes, 2));
#elif defined(__AVX2__)
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    const __m256i bytes = _mm256_shuffle_epi8(__m256i(packed), order);
    // Twelve bytes a half: the upper ones overwrite the four that are too much in the lower store.
    const __m128i upper = _mm256_extracti128_si256(bytes, 1);
    store_vector(target, _mm256_castsi256_si128(bytes));
    store_vector(target + 12, _mm_cvtsi128_si64(upper));
    store_vector(target + 20, _mm_extract_epi32(upper, 2));
#else
    for (int i = 0; i < lane_count; ++i) {
      const std::uint32_t word = packed[i];
      std::memcpy(target + 3 * i, &word, 2);
      target[3 * i + 2] = static_cast<std::uint8_t>(word >> 16);
    }
#endif
  }
}

// The inverse of store_codes.
template <int Bits>
[[gnu::always_inline]] inline StepBytes load_codes(const std::uint8_t* source) {
  if constexpr (Bits == 8) {
    return load_vector<StepBytes>(source);
  } else if constexpr (Bits == 4) {
    const auto packed = __builtin_convertvector(load_vector<HalfStepBytes>(source), HalfStepHalves);
    return StepBytes((packed | packed << 4) & 0x0F0Fu);
  } else {
    static_assert(Bits == 6, "codes have 4, 6 or 8 bits");
#if defined(__AVX512VBMI__)
    const __m512i bytes = _mm512_inserti32x4(_mm512_castsi256_si512(load_vector<__m256i>(source)),
                                             load_vector<__m128i>(source + 32), 2);
    const auto four = BitLanes(permute_bytes(bytes, [](int i) { return i / 4 * 3 + i % 4; }));
#elif defined(__AVX2__)
    const __m256i bytes =
        _mm256_set_m128i(load_vector<__m128i>(source + 8), load_vector<__m128i>(source));
    const __m256i order =
        _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1,  //
                         4, 5, 6, -1, 7, 8, 9, -1, 10, 11, 12, -1, 13, 14, 15, -1);
    const auto four = BitLanes(_mm256_shuffle_epi8(bytes, order));
#else
    BitLanes four;
    for (int i = 0; i < lane_count; ++i) {
      std::uint16_t low;
      std::memcpy(&low, source + 3 * i, 2);
      four[i] = low | static_cast<std::uint32_t>(source[3 * i + 2]) << 16;
    }
#endif
    return StepBytes((four & 0x3Fu) | (four << 2 & 0x3F00u) | (four << 4 & 0x3F0000u) |
                     (four << 6 & 0x3F000000u));
  }
}

}  // namespace
}  // namespace mxkern::cpu
