// mxkern/numerics/scale_rule.h: the E8M0 scale of a block from its largest magnitude.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/numerics/format.h"
#include "mxkern/numerics/scale_format.h"

namespace mxkern {

// rceil: the smallest power of two under which nothing saturates (Transformer Engine, cuBLAS).
// floor: OCP MX v1.0. ceil: torchao. even: torchao, compressed-tensors MXFP4.
enum class ScaleRule : std::uint8_t { rceil, floor, ceil, even };

inline constexpr ScaleRule all_scale_rules[] = {ScaleRule::rceil, ScaleRule::floor, ScaleRule::ceil,
                                                ScaleRule::even};

constexpr const char* name_of(ScaleRule rule) {
  switch (rule) {
    case ScaleRule::rceil: return "rceil";
    case ScaleRule::floor: return "floor";
    case ScaleRule::ceil: return "ceil";
    case ScaleRule::even: return "even";
  }
  return "unknown";
}

// The E8M0 byte for a block whose largest magnitude has the float32 bits `amax`, which are finite.
template <class Format>
MXKERN_HOST_DEVICE constexpr std::uint8_t e8m0_scale(std::uint32_t amax, ScaleRule rule) {
  std::int32_t byte = 0;
  if (rule == ScaleRule::rceil) {
    const std::uint32_t ratio = bits_of(float_of(amax) * (1.0f / Format::max_value));
    const std::uint32_t exponent = float32::exponent_field(ratio);
    const std::uint32_t mantissa = float32::mantissa_field(ratio);
    // Half of the smallest normal is 2^-127, the value of byte 0; above it byte 1 is needed.
    const std::uint32_t exact = exponent == 0 ? 0x00400000u : 0u;
    byte = static_cast<std::int32_t>(exponent + (mantissa > exact ? 1u : 0u));
  } else {
    std::uint32_t rounded = amax;
    if (rule == ScaleRule::even)
      rounded += 1u << (float32::mantissa_bits - 1 - Format::mantissa_bits);
    const bool up = rule == ScaleRule::ceil && float32::mantissa_field(amax) != 0;
    byte = static_cast<std::int32_t>(float32::exponent_field(rounded) + (up ? 1u : 0u)) -
           Format::max_exponent;
  }
  byte = byte < 0 ? 0 : byte;
  return static_cast<std::uint8_t>(byte > E8M0::max_byte ? E8M0::max_byte : byte);
}

static_assert(e8m0_scale<E4M3>(bits_of(448.0f), ScaleRule::rceil) == 127);
static_assert(e8m0_scale<E4M3>(bits_of(449.0f), ScaleRule::rceil) == 128);
static_assert(e8m0_scale<E4M3>(bits_of(500.0f), ScaleRule::floor) == 127);
static_assert(e8m0_scale<E2M1>(bits_of(7.0f), ScaleRule::even) == 128);
static_assert(e8m0_scale<E2M1>(bits_of(5.0f), ScaleRule::ceil) == 128);
static_assert(e8m0_scale<E2M1>(0, ScaleRule::rceil) == 0);
// A carry beyond float32 counts as exponent 255.
static_assert(e8m0_scale<E4M3>(float32::largest_bits, ScaleRule::even) == 247);

}  // namespace mxkern
