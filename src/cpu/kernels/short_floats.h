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
inline constexpr bool are_short_floats = is_fp8<Format>;
#elif defined(__AVX2__)
template <class Format>
inline constexpr bool are_short_floats = is_ocp_float<Format>;
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
#if defined(__AVX512F__)
  if constexpr (Format::specials == Specials::nan_only) {
    // Even codes in the lower half of a register, odd ones in the upper half, in upper bytes.
    static_assert(Format::bits == 8 && right == 1, "the shift leaves the sign in two bits");
    const __m512i order = _mm512_set_epi64(
        0x0F800D800B800980, 0x0780058003800180, 0x0F800D800B800980, 0x0780058003800180,
        0x0E800C800A800880, 0x0680048002800080, 0x0E800C800A800880, 0x0680048002800080);
    const __m512i codes =
        _mm512_shuffle_epi8(_mm512_broadcast_i64x4(load_vector<__m256i>(bytes)), order);
    // The lower of both is the sign still, or its inverse once a carry has come from a NaN: their
    // difference is the exponent's top bit.
    const __m512i shifted = _mm512_srai_epi16(codes, 1);
    const __m512i carried = _mm512_add_epi16(shifted, _mm512_set1_epi16(1 << lowest));
    constexpr int differ_where = 0x78;  // a ^ (b & c)
    const __m512i halves =
        _mm512_ternarylogic_epi32(shifted, carried, _mm512_set1_epi16(0x4000), differ_where);
    return {to_float(HalfInts(_mm512_castsi512_si256(halves))),
            to_float(HalfInts(_mm512_extracti64x4_epi64(halves, 1)))};
  }
#endif
  const HalfInts pairs = load_upper_pairs<Format::bits>(bytes);
  return {to_float(to_half(pairs << Format::bits)), to_float(to_half(pairs))};
}
#endif

}  // namespace
}  // namespace mxkern::cpu
