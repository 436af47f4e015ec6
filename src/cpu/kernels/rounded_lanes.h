// cpu/kernels/rounded_lanes.h: the codes of lanes of float32.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/lanes_memory.h"
#include "mxkern/numerics/codec.h"
#include "mxkern/numerics/rounding.h"

namespace mxkern::cpu {
namespace {

// encode_lanes, where there is a shorter way to the same codes.
template <class Format>
[[gnu::always_inline]] inline BitLanes nearest_lanes(FloatLanes value) {
#if defined(__AVX2__)
  if constexpr (Format::is_integer) {
    constexpr int largest = Format::max_code;
    const FloatLanes scaled = value * (1.0f / Format::min_subnormal);
#if defined(__AVX512F__)
    constexpr __mmask16 all = 0xFFFF;  // without it GCC warns of its own header
    const __m512i code = _mm512_maskz_cvtps_epi32(all, __m512(scaled));
    const __m512i lower = _mm512_maskz_min_epi32(all, code, _mm512_set1_epi32(largest));
    const __m512i limited = _mm512_maskz_max_epi32(all, lower, _mm512_set1_epi32(-largest));
#else
    const __m256i limited = _mm256_max_epi32(
        _mm256_min_epi32(_mm256_cvtps_epi32(__m256(scaled)), _mm256_set1_epi32(largest)),
        _mm256_set1_epi32(-largest));
#endif
    return BitLanes(limited) & 0xFFu;
  }
#endif
  return encode_lanes<Format>(value);
}

// The codes of lanes whose random words, of stochastic rounding, `random()` gives.
template <class Format, Rounding rounding, class Random>
[[gnu::always_inline]] inline BitLanes rounded_lanes(FloatLanes value, Random&& random) {
  if constexpr (rounding == Rounding::nearest) {
    return nearest_lanes<Format>(value);
  } else {
    return encode_stochastic_lanes<Format>(value, random());
  }
}

}  // namespace
}  // namespace mxkern::cpu
