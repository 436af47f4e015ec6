// mxkern/numerics/scale_rule.h: the E8M0 scale of a block from its largest magnitude.
#pragma once

#include <cstdint>
#include <type_traits>

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

// Calls visitor(std::integral_constant<ScaleRule, R>{}) for the rule.
template <class Visitor>
constexpr decltype(auto) visit(ScaleRule rule, Visitor&& visitor) {
  switch (rule) {
    case ScaleRule::rceil: break;
    case ScaleRule::floor: return visitor(std::integral_constant<ScaleRule, ScaleRule::floor>{});
    case ScaleRule::ceil: return visitor(std::integral_constant<ScaleRule, ScaleRule::ceil>{});
    case ScaleRule::even: return visitor(std::integral_constant<ScaleRule, ScaleRule::even>{});
  }
  return visitor(std::integral_constant<ScaleRule, ScaleRule::rceil>{});
}

// A scale rule as numbers: the byte is the exponent field of the bits of amax * factor, plus
// `addend`, less `exponent`, held between 0 and 254.
struct E8M0Rule {
  float factor;
  std::uint32_t addend;
  std::uint32_t subnormal_addend;  // where the product is subnormal
  std::int32_t exponent;
  bool saturates;  // elements can be beyond the format's largest value

  friend constexpr bool operator==(const E8M0Rule&, const E8M0Rule&) = default;

  template <class Format>
  MXKERN_HOST_DEVICE static constexpr E8M0Rule of(ScaleRule rule) {
    constexpr std::uint32_t any = float32::mantissa_mask;
    constexpr std::uint32_t half = 1u << (float32::mantissa_bits - 1 - Format::mantissa_bits);
    switch (rule) {
      case ScaleRule::rceil:
        // Half of the smallest normal is 2^-127, the value of byte 0; above it byte 1 is needed.
        // Where float32 ends, the scale ends before a format that does not reach 2.
        return {1.0f / Format::max_value, any, any >> 1, 0, Format::max_exponent == 0};
      case ScaleRule::floor: return {1.0f, 0, 0, Format::max_exponent, true};
      case ScaleRule::ceil: return {1.0f, any, any, Format::max_exponent, true};
      case ScaleRule::even: return {1.0f, half, half, Format::max_exponent, true};
    }
    return {};
  }

  // The bytes of blocks whose largest magnitudes have the float32 bits `amax`, which are finite.
  template <class Bits>
  MXKERN_HOST_DEVICE constexpr Bits bytes(Bits amax) const {
    const Bits product = bits_of(float_of<Bits>(amax) * factor);
    const Bits added = product <= broadcast<Bits>(float32::mantissa_mask)
                           ? broadcast<Bits>(subnormal_addend)
                           : broadcast<Bits>(addend);
    const Bits field = (product + added) >> float32::mantissa_bits;
    const Bits lowest = broadcast<Bits>(static_cast<std::uint32_t>(exponent));
    return lower_of<Bits>(higher_of<Bits>(field, lowest) - lowest,
                          broadcast<Bits>(std::uint32_t{E8M0::max_byte}));
  }
};

// The E8M0 byte for a block whose largest magnitude has the float32 bits `amax`, which are finite.
template <class Format>
MXKERN_HOST_DEVICE constexpr std::uint8_t e8m0_scale(std::uint32_t amax, ScaleRule rule) {
  return static_cast<std::uint8_t>(E8M0Rule::of<Format>(rule).bytes(amax));
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
