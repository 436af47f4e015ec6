// cpu/kernels/lanes_memory.h: lanes of float32 from and to memory that holds any plain element
// type. Only files in cpu/instances/ may include it.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "cpu/lanes.h"

namespace mxkern::cpu {
// One copy for each including object: the linker must not merge code of different instruction sets.
namespace {

template <class Vector>
[[gnu::always_inline]] inline Vector load_vector(const void* source) {
  Vector vector;
  std::memcpy(&vector, source, sizeof(vector));
  return vector;
}

template <class Vector>
[[gnu::always_inline]] inline void store_vector(void* target, Vector vector) {
  std::memcpy(target, &vector, sizeof(vector));
}

template <class T>
[[gnu::always_inline]] inline void copy_elements(T* target, const T* source, std::int64_t count) {
  std::memcpy(target, source, static_cast<std::size_t>(count) * sizeof(T));
}

// lane_count times 16 bits, each in the lower half of a lane.
[[gnu::always_inline]] inline BitLanes load_halves(const void* source) {
#if defined(__AVX512F__)
  return BitLanes(_mm512_maskz_cvtepu16_epi32(0xFFFF, load_vector<__m256i>(source)));
#else
  return __builtin_convertvector(load_vector<HalfLanes>(source), BitLanes);
#endif
}

// lane_count elements as float32; exact.
[[gnu::always_inline]] inline FloatLanes load_lanes(const float* source) {
  return load_vector<FloatLanes>(source);
}

[[gnu::always_inline]] inline FloatLanes load_lanes(const bfloat16* source) {
  return float_of<BitLanes>(load_halves(source) << 16);
}

[[gnu::always_inline]] inline FloatLanes load_lanes(const float16* source) {
#if defined(__AVX512F__)
  return FloatLanes(_mm512_maskz_cvtph_ps(0xFFFF, load_vector<__m256i>(source)));
#elif defined(__AVX2__)
  return FloatLanes(_mm256_cvtph_ps(load_vector<__m128i>(source)));
#else
  FloatLanes lanes;
  for (int i = 0; i < lane_count; ++i) lanes[i] = to_float(source[i]);
  return lanes;
#endif
}

// Every NaN becomes the same one: processors disagree about the signs of NaNs that they make.
[[gnu::always_inline]] inline FloatLanes with_one_nan(FloatLanes lanes) {
  return lanes == lanes ? lanes : broadcast<FloatLanes>(float_of(float32::nan_bits));
}

// Rounds lane_count float32, whose NaNs are with_one_nan, to nearest, ties to even.
[[gnu::always_inline]] inline void store_lanes(float* target, FloatLanes lanes) {
  store_vector(target, lanes);
}

[[gnu::always_inline]] inline void store_lanes(bfloat16* target, FloatLanes lanes) {
  // The one NaN has no low bits that could carry into its exponent.
  const BitLanes bits = bits_of(lanes);
  const BitLanes rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
#if defined(__AVX512F__)
  store_vector(target, _mm512_maskz_cvtepi32_epi16(0xFFFF, __m512i(rounded)));
#else
  store_vector(target, __builtin_convertvector(rounded, HalfLanes));
#endif
}

[[gnu::always_inline]] inline void store_lanes(float16* target, FloatLanes lanes) {
#if defined(__AVX512F__)
  store_vector(target, _mm512_cvtps_ph(__m512(lanes), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
  store_vector(target, _mm256_cvtps_ph(__m256(lanes), _MM_FROUND_TO_NEAREST_INT));
#else
  for (int i = 0; i < lane_count; ++i) target[i] = from_float<float16>(lanes[i]);
#endif
}

}  // namespace
}  // namespace mxkern::cpu
