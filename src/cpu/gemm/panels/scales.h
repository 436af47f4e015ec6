// cpu/gemm/panels/scales.h: the scales of a block of rows of a panel, as float32 lanes.
// Only files in cpu/instances/ may include it.
#pragma once

#include <cstdint>

#include "cpu/gemm/shifts.h"
#include "cpu/kernels/lanes_memory.h"
#include "mxkern/tensor/panel_layout.h"

namespace mxkern::cpu {
namespace {

// Of as many rows as there are lanes. Powers of two come relative to what the row is shifted by,
// and are zeros where they would be too small for a float32. What NaN bytes give is arbitrary.
template <class ScaleFormat>
struct PanelScales {
  BitLanes shift;

  // exponent: of what codes decode to, times 2^exponent.
  [[gnu::always_inline]] PanelScales(const std::int32_t* shifts, int exponent)
      : shift(load_vector<BitLanes>(shifts) + static_cast<std::uint32_t>(exponent)) {}

  [[gnu::always_inline]] FloatLanes load(const std::uint8_t* bytes) const {
    const BitLanes field = widen_bytes(bytes) + shift;
#if defined(__AVX512F__)
    const BitLanes raised = BitLanes(_mm512_max_epi32(__m512i(field), _mm512_setzero_si512()));
#elif defined(__AVX2__)
    const BitLanes raised = BitLanes(_mm256_max_epi32(__m256i(field), _mm256_setzero_si256()));
#else
    const BitLanes raised =
        reinterpret_cast<IntLanesOfPanel>(field) < 0 ? broadcast<BitLanes>(0u) : field;
#endif
    return float_of<BitLanes>(raised << float32::mantissa_bits);
  }

 private:
  using IntLanesOfPanel = std::int32_t __attribute__((vector_size(4 * lane_count)));
};

// The exponent is applied to all alike.
template <class ScaleFormat>
requires(!ScaleFormat::is_power_of_two) struct PanelScales<ScaleFormat> {
  float factor;

  [[gnu::always_inline]] PanelScales(const std::int32_t*, int exponent)
      : factor(float32::exp2(exponent)) {}

  [[gnu::always_inline]] FloatLanes load(const std::uint8_t* bytes) const {
    return decode_lanes<typename ScaleFormat::Element>(widen_bytes(bytes)) * factor;
  }
};

#if defined(__AVX2__)
// Bytes without a sign are halves but for the bias of the exponent.
template <>
struct PanelScales<UE4M3> {
  static constexpr int exponent_of_halves = 15 - E4M3::bias;
  float factor;

  [[gnu::always_inline]] PanelScales(const std::int32_t*, int exponent)
      : factor(float32::exp2(exponent + exponent_of_halves)) {}

  [[gnu::always_inline]] FloatLanes load(const std::uint8_t* bytes) const {
#if defined(__AVX512F__)
    const __m256i halves = _mm256_slli_epi16(_mm256_cvtepu8_epi16(load_vector<__m128i>(bytes)), 7);
    return FloatLanes(_mm512_cvtph_ps(halves)) * factor;
#else
    const __m128i half_words = _mm_slli_epi16(
        _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes))), 7);
    return FloatLanes(_mm256_cvtph_ps(half_words)) * factor;
#endif
  }
};
#endif

}  // namespace
}  // namespace mxkern::cpu
