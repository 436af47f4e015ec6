// mxkern/tensor/lifted_scales.h: scales of NVFP4 in reordered weights: an exponent of five bits.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/numerics/scheme.h"

namespace mxkern {

// A scale's seven bits in eight, none subnormal: as fields of a float they need no more than an
// addition to its exponent, which is what a scale costs where two rows of 16 columns share it. Zero
// stays zero; blocks of that scale have codes of zero.
struct LiftedScales {
  // A half has the same exponent field for 64 times the scale.
  static constexpr int mantissa_bits = 3, bias = 21;

  MXKERN_HOST_DEVICE static constexpr std::uint8_t lift(std::uint8_t ue4m3) {
    // Zero, and one to seven times 2^-9.
    constexpr std::uint64_t subnormals = 0x767472706C686000u;
    constexpr int lifted = (bias - E4M3::bias) << mantissa_bits;
    return static_cast<std::uint8_t>(ue4m3 < 8 ? subnormals >> (8 * ue4m3) : ue4m3 + lifted);
  }
  MXKERN_HOST_DEVICE static constexpr float decode(std::uint8_t lifted) {
    if (lifted == 0) return 0.0f;
    constexpr int exponent = 127 - bias;
    return float_of((static_cast<std::uint32_t>(lifted) << (23 - mantissa_bits)) +
                    (static_cast<std::uint32_t>(exponent) << 23));
  }
};

// The value of a scale as reordered weights have it.
template <class S>
MXKERN_HOST_DEVICE constexpr float decode_reordered_scale(std::uint8_t scale) {
  if constexpr (S::has_tensor_scale) {
    return LiftedScales::decode(scale);
  } else {
    return S::ScaleFormat::decode(scale);
  }
}

}  // namespace mxkern
