// cpu/kernels/short_floats.h: codes of short floats to float32 by the processor's conversion of
// halves. Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/bfloat16_pairs.h"
#include "mxkern/numerics/codec.h"

namespace mxkern::cpu {
namespace {

// Formats for which that is the shortest way. With AVX-512 tables have those of fewer bits.
#if defined(__AVX512F__)
template <class Format>
inline constexpr bool are_short_floats = Format::bits == 8 && !Format::is_integer;
#elif defined(__AVX2__)
template <class Format>
inline constexpr bool are_short_floats = !Format::is_integer;
#else
template <class Format>
inline constexpr bool are_short_floats = false;
#endif

// What load_short_floats gives is 2^-exponent times the values.
template <class Format>
inline constexpr int short_float_exponent = 15 - Format::bias;

#if defined(__AVX2__)
using HalfInts = std::int16_t __attribute__((vector_size(2 * lane_count)));

// The codes of a step, two neighbours a lane: the odd one in the upper bits, the even one right
// below; what is below both is arbitrary.
template <int Bits>
[[gnu::always_inline]] inline HalfInts load_upper_pairs(const std::uint8_t* bytes) {
  if constexpr (Bits == 8) {
    return load_vector<HalfInts>(bytes);
#if !defined(__AVX512F__)
  } else if constexpr (Bits == 4) {
    const __m128i pairs = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes));
    return HalfInts(_mm_unpacklo_epi8(_mm_setzero_si128(), pairs));
  } else {
    static_assert(Bits == 6, "4-, 6- and 8-bit codes exist");
    // Three bytes hold two pairs: the first one's upper four bits are the second one's.
    const __m128i packed =
        _mm_insert_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)),
                         load_vector<std::int32_t>(bytes + 8), 2);
    const __m128i order = _mm_setr_epi8(0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11);
    return HalfInts(_mm_mullo_epi16(_mm_shuffle_epi8(packed, order), _mm_set1_epi32(1 << 16 | 16)));
#endif
  }
}

// The even and the odd ones of a step. Short floats are cut-off halves, E5M2 exactly and others but
// for the bias; subnormals are no trouble.
template <class Format>
[[gnu::always_inline]] inline FloatPairs load_short_floats(const std::uint8_t* bytes) {
  constexpr int right = 5 - Format::exponent_bits;
  constexpr int lowest = 16 - Format::bits - right;  // of a half's bits, that a code has
  constexpr auto mask = static_cast<std::int16_t>(0x8000 | Format::magnitude_mask << lowest);
  const auto to_half = [](HalfInts upper) {
    HalfInts half = upper >> right & mask;
    // The code of all ones is NaN: adding one carries into the exponent's top bit.
    if constexpr (Format::specials == Specials::nan_only) {
      static_assert(right > 0, "the top bit is free");
      half |= (half + std::int16_t{1 << lowest}) & std::int16_t{0x4000};
    }
    return half;
  };
  const auto to_float = [](HalfInts half) {
#if defined(__AVX512F__)
    return FloatLanes(_mm512_cvtph_ps(__m256i(half)));
#else
    return FloatLanes(_mm256_cvtph_ps(__m128i(half)));
#endif
  };
  const HalfInts pairs = load_upper_pairs<Format::bits>(bytes);
  return {to_float(to_half(pairs << Format::bits)), to_float(to_half(pairs))};
}
#endif

}  // namespace
}  // namespace mxkern::cpu
