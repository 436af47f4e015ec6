// mxkern/kernels/decode/hopper/scales.cuh: scales of decoded weights, a row or two at a time.
#pragma once

#include <cstdint>

#include "mxkern/kernels/decode/upcast.cuh"

namespace mxkern::kernels::few {

// Octaves between the scales of a row over which the high bytes of halves hold every weight: by one
// multiplication, and by two, the first of which is by this power of two.
inline constexpr int near_octaves = 16, far_exponent = 12;
inline constexpr int most_octaves = near_octaves + far_exponent;

// Whether scales are relative to their row's top: halves have no room for E8M0.
template <class K>
inline constexpr bool has_tops = K::is_half && !K::Scheme::has_tensor_scale;

// Of the top as an exponent field: of halves, or of the float32 that sums are multiplied with.
template <class K>
inline constexpr int top_field = HalfScales<typename K::Format>::top_field;
template <class K>
requires(K::scales_sums) inline constexpr int top_field<K> = 127;

// What is added to the scales of two rows, a half of the word each, to make exponent fields of
// halves of them. `row`: the first of these rows, 8 before the other one.
template <class K>
__device__ __forceinline__ std::uint32_t scale_offsets(const DecodeParameters& p,
                                                       const std::uint8_t* weights,
                                                       std::int64_t row) {
  std::uint32_t offsets = 0;
  if constexpr (has_tops<K>) {
    const DecodeLayout layout{p.layout.rows, p.layout.columns, K::layout.bits, K::layout.block};
    if (row < layout.tiles_down() * DecodeLayout::tile_rows) {
      const auto* scales =
          reinterpret_cast<const ScaleSpread*>(weights + layout.spreads_offset()) + row;
      constexpr int field = top_field<K>;
      offsets = static_cast<std::uint16_t>(field - scales[0].top) |
                static_cast<std::uint32_t>(field - scales[8].top) << 16;
    }
  }
  return offsets;
}

// Multipliers of decoded weights, of two rows; `pick` selects their scales.
template <class K>
__device__ __forceinline__ std::uint32_t multipliers_of(
    std::uint32_t word, std::uint32_t pick, [[maybe_unused]] std::uint32_t offsets = 0) {
  using Format = typename K::Format;
  const std::uint32_t both = __byte_perm(word, 0, pick);  // a byte in each half
  if constexpr (has_tops<K>) {
    // Zeros have a scale of zero, far below: no exponent field may wrap.
    return __viaddmax_s16x2(both, offsets, 0) * 1024;
  } else if constexpr (K::Scheme::has_tensor_scale) {
    return lifted_multipliers<K>(both);
  } else {
    int offset = 0;
    if constexpr (!Format::is_integer) offset = 127 - Format::bias + K::weight_exponent;
    return both * 128 + static_cast<std::uint32_t>(offset) * 0x00800080u;
  }
}

}  // namespace mxkern::kernels::few
