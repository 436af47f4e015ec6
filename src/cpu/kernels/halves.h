// cpu/kernels/halves.h: lanes of 16 bits, a register of them, and what GCC has no operator for.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/code_lanes.h"

#if defined(__AVX2__)

namespace mxkern::cpu {
namespace {

using Halves = StepHalves;
inline constexpr int half_lanes = step_elements / 2;

[[gnu::always_inline]] inline Halves all_halves(int value) {
  return broadcast<Halves>(static_cast<std::uint16_t>(value));
}

// a - b, or 0 where b is more.
[[gnu::always_inline]] inline Halves difference_from_zero(Halves a, Halves b) {
#if defined(__AVX512F__)
  return Halves(_mm512_subs_epu16(__m512i(a), __m512i(b)));
#else
  return Halves(_mm256_subs_epu16(__m256i(a), __m256i(b)));
#endif
}

[[gnu::always_inline]] inline bool are_zeros(Halves x) {
#if defined(__AVX512F__)
  return _mm512_test_epi16_mask(__m512i(x), __m512i(x)) == 0;
#else
  return _mm256_testz_si256(__m256i(x), __m256i(x)) != 0;
#endif
}

// x, and one more where a is more than b; both are below 2^15.
[[gnu::always_inline]] inline Halves one_more_where(Halves x, Halves a, Halves b) {
#if defined(__AVX512F__)
  const __mmask32 more = _mm512_cmpgt_epi16_mask(__m512i(a), __m512i(b));
  return Halves(_mm512_mask_add_epi16(__m512i(x), more, __m512i(x), __m512i(all_halves(1))));
#else
  return x - Halves(_mm256_cmpgt_epi16(__m256i(a), __m256i(b)));
#endif
}

// Byte number `index` of a table in each byte.
[[gnu::always_inline]] inline Halves look_up(const std::uint8_t* table, Halves index) {
  const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
#if defined(__AVX512F__)
  return Halves(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), __m512i(index)));
#else
  return Halves(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), __m256i(index)));
#endif
}

// The sums of the products of both bytes.
[[gnu::always_inline]] inline Halves multiply_bytes(Halves a, Halves b) {
#if defined(__AVX512F__)
  return Halves(_mm512_maddubs_epi16(__m512i(a), __m512i(b)));
#else
  return Halves(_mm256_maddubs_epi16(__m256i(a), __m256i(b)));
#endif
}

// Two registers of halves below 256 as bytes, in order.
[[gnu::always_inline]] inline StepBytes narrow_halves(Halves low, Halves high) {
#if defined(__AVX512F__)
  const __m512i packed = _mm512_packus_epi16(__m512i(low), __m512i(high));
  return StepBytes(_mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), packed));
#else
  const __m256i packed = _mm256_packus_epi16(__m256i(low), __m256i(high));
  return StepBytes(_mm256_permute4x64_epi64(packed, 0b11011000));
#endif
}

// Whether a is more than b, to choose between lanes; both are below 2^15. Without signs AVX2 has
// no such comparison.
[[gnu::always_inline]] inline auto is_more(Halves a, Halves b) {
  using Signed = std::int16_t __attribute__((vector_size(sizeof(Halves))));
  return Signed(a) > Signed(b);
}

// As many bytes, one a lane.
[[gnu::always_inline]] inline Halves widen_to_halves(const std::uint8_t* bytes) {
#if defined(__AVX512F__)
  return Halves(_mm512_cvtepu8_epi16(load_vector<__m256i>(bytes)));
#else
  return Halves(_mm256_cvtepu8_epi16(load_vector<__m128i>(bytes)));
#endif
}

}  // namespace
}  // namespace mxkern::cpu

#endif
