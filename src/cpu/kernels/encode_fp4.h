// cpu/kernels/encode_fp4.h: elements under any scales to codes of E2M1, in lanes of less than 32
// bits. Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/bfloat16_pairs.h"
#include "cpu/kernels/code_lanes.h"
#include "cpu/kernels/halves.h"
#include "mxkern/numerics/codec.h"

#if defined(__AVX512F__)

namespace mxkern::cpu {
namespace {

// The codes of magnitudes by their quarters of binades: entry 0 is below 0.25, entry 1 begins
// there. Where codes change is the beginning of an entry.
struct QuarterCodes {
  static constexpr int drop = 5;  // of the seven bits of a bfloat16's mantissa
  static constexpr std::uint32_t first = 0x3E80 - (1 << drop);  // bits of the bfloat16
  alignas(64) std::uint16_t codes[half_lanes];
  constexpr QuarterCodes() : codes() {
    for (std::uint32_t i = 0; i < half_lanes; ++i) {
      const std::uint32_t inside = first + (2 * i + 1) * (1 << (drop - 1));
      codes[i] = encode<E2M1>(float_of<std::uint32_t>(inside << 16));
    }
  }
};

// The upper halves of both, whose last bit is set where any behind it is: they compare with what
// has seven significant bits as the float32 do.
[[gnu::always_inline]] inline Halves upper_halves(FloatPairs values) {
  const __m512i even = __m512i(bits_of(values.even)), odd = __m512i(bits_of(values.odd));
  const __m512i lower = _mm512_set1_epi32(0xFFFF);
  const __mmask16 more_even = _mm512_test_epi32_mask(even, lower);
  const __mmask16 more_odd = _mm512_test_epi32_mask(odd, lower);
  const __m512i upper = __m512i(bits_of(values.even) >> 16 | (bits_of(values.odd) & 0xFFFF0000u));
  const __m512i with_even = _mm512_mask_or_epi32(upper, more_even, upper, _mm512_set1_epi32(1));
  return Halves(_mm512_mask_or_epi32(with_even, more_odd, with_even, _mm512_set1_epi32(0x10000)));
}

// encode_lanes<E2M1> of each: the nearest code, ties to even.
[[gnu::always_inline]] inline Halves encode_fp4(FloatPairs values) {
  static constexpr QuarterCodes table;
  constexpr std::uint16_t largest = bits_of(E2M1::max_value) >> 16;
  const Halves upper = upper_halves(values);
  const Halves magnitude = lower_of<Halves>(upper & std::uint16_t{0x7FFF}, all_halves(largest));
  // Ties at the first half of a binade go down, those of the second up.
  const Halves tied_up = upper >> 6 & std::uint16_t{1};
  const Halves quarter =
      difference_from_zero(magnitude + tied_up, all_halves(table.first + 1)) >> table.drop;
  const auto codes =
      Halves(_mm512_permutexvar_epi16(__m512i(quarter), _mm512_load_si512(table.codes)));
  return codes | (upper >> 12 & std::uint16_t{8});
}

// Encodes a step; multipliers: of its blocks.
template <class S>
[[gnu::always_inline]] inline void encode_fp4_step(const bfloat16* x, const float* multipliers,
                                                   std::uint8_t* codes) {
  for (int i = 0; i < step_elements; i += half_lanes) {
    const FloatPairs values = load_pairs(x + i);
    const FloatLanes factors = pair_factors<S::block>(multipliers + i / S::block);
    const auto pairs = BitLanes(encode_fp4({values.even * factors, values.odd * factors}));
    store_vector(codes + i / 2, __builtin_convertvector((pairs | pairs >> 12) & 0xFFu, ByteLanes));
  }
}

}  // namespace
}  // namespace mxkern::cpu

#elif defined(__AVX2__)

namespace mxkern::cpu {
namespace {

// The low bytes of a step's lanes, saturated: four of each register in turn, then the other four.
[[gnu::always_inline]] inline __m256i saturated_bytes(const __m256i (&lanes)[step_registers]) {
  return _mm256_packs_epi16(_mm256_packs_epi32(lanes[0], lanes[1]),
                            _mm256_packs_epi32(lanes[2], lanes[3]));
}

// encode_lanes<E2M1> of a step: the nearest codes, ties to even, in the order of saturated_bytes.
// Below 2 a code is twice its value and up to 4 it is two more than it. Rounded to an integer, ties
// to even, the lesser of both is the code there; from 4 on it is 6, and above 5 it is 7.
[[gnu::always_inline]] inline __m256i encode_fp4(const FloatLanes (&values)[step_registers]) {
  __m256i bits[step_registers], once[step_registers], twice[step_registers], last[step_registers];
  for (int i = 0; i < step_registers; ++i) {
    bits[i] = __m256i(bits_of(values[i]));
    const auto absolute = float_of<BitLanes>(bits_of(values[i]) & float32::magnitude_mask);
    const __m256 magnitude = _mm256_min_ps(__m256(absolute), _mm256_set1_ps(E2M1::max_value));
    once[i] = _mm256_cvtps_epi32(magnitude);
    twice[i] = _mm256_cvtps_epi32(_mm256_add_ps(magnitude, magnitude));
    last[i] = _mm256_castps_si256(_mm256_cmp_ps(magnitude, _mm256_set1_ps(5.0f), _CMP_GT_OQ));
  }
  const auto all = [](int byte) { return _mm256_set1_epi8(static_cast<char>(byte)); };
  const __m256i lower =
      _mm256_min_epu8(saturated_bytes(twice), _mm256_add_epi8(saturated_bytes(once), all(2)));
  const __m256i code = _mm256_min_epu8(lower, _mm256_sub_epi8(all(6), saturated_bytes(last)));
  const __m256i sign = _mm256_and_si256(saturated_bytes(bits), all(0x80));
  return _mm256_or_si256(code, _mm256_srli_epi16(sign, 4));
}

// Encodes a step; multipliers: of its first block and on.
template <class S, class T>
[[gnu::always_inline]] inline void encode_fp4_step(const T* x, const float* multipliers,
                                                   std::uint8_t* codes) {
  FloatLanes values[step_registers];
  for (int i = 0; i < step_registers; ++i) {
    values[i] = load_lanes(x + i * lane_count) * multipliers[i * lane_count / S::block];
  }
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  store_codes<4>(codes, StepBytes(_mm256_permutevar8x32_epi32(encode_fp4(values), order)));
}

template <class S>
[[gnu::always_inline]] inline void encode_fp4_step(const bfloat16* x, const float* multipliers,
                                                   std::uint8_t* codes) {
  FloatLanes values[step_registers];
  for (int i = 0; i < 2; ++i) {
    const FloatPairs pairs = load_pairs(x + i * 2 * lane_count);
    const FloatLanes factors = pair_factors<S::block>(multipliers + i * 2 * lane_count / S::block);
    values[2 * i] = pairs.even * factors;
    values[2 * i + 1] = pairs.odd * factors;
  }
  const __m256i order = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15));
  const __m256i halves = _mm256_shuffle_epi8(encode_fp4(values), order);
  store_codes<4>(codes, StepBytes(_mm256_permute4x64_epi64(halves, 0b11011000)));
}

// The codes of eight rows, of each lane in a word, the first one lowest.
[[gnu::always_inline]] inline BitLanes encode_fp4_words(const FloatLanes (&rows)[8]) {
  const __m256i turned = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  __m256i pairs[2];  // of four rows, in halves of words
  for (int i = 0; i < 2; ++i) {
    const FloatLanes four[] = {rows[4 * i], rows[4 * i + 1], rows[4 * i + 2], rows[4 * i + 3]};
    const __m256i codes = _mm256_shuffle_epi8(encode_fp4(four), turned);
    pairs[i] = _mm256_maddubs_epi16(codes, _mm256_set1_epi16(0x1001));
  }
  const __m256i joined = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
  return BitLanes(_mm256_shuffle_epi8(_mm256_packus_epi16(pairs[0], pairs[1]), joined));
}

}  // namespace
}  // namespace mxkern::cpu

#endif
