// cpu/kernels/encode_fp4.h: bfloat16 under any scales to codes of E2M1, in lanes of 16 bits.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/bfloat16_pairs.h"
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

#endif
