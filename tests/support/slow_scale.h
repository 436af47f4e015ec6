// tests/support/slow_scale.h: block scales as the rules are written, in double precision and with
// searches where the library moves bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "mxkern/numerics/scale_rule.h"
#include "tests/support/format_list.h"

namespace mxkern::test {

// The E8M0 byte of a finite block amax.
template <class Format>
int slow_e8m0_scale(float amax, ScaleRule rule) {
  constexpr PublishedFormat format = published<Format>;
  constexpr int top = 254;
  if (rule == ScaleRule::rceil) {
    // Both factors have 24 bits: the double product is exact, its conversion the only rounding.
    const auto inverse = static_cast<float>(1.0 / format.largest);
    const auto ratio = static_cast<float>(static_cast<double>(amax) * inverse);
    int byte = 0;
    while (byte < top && std::ldexp(1.0, byte - 127) < ratio) ++byte;
    return byte;
  }
  // The exponent of a float32 as its field has it: 0 for zero and subnormals.
  const auto exponent_of = [](double v) { return v < 0x1p-126 ? 0 : std::ilogb(v) + 127; };
  double value = amax;
  if (rule == ScaleRule::even && value >= 0x1p-126) {
    // The nearest number with the format's mantissa bits, halves up; 2^128 has field 255.
    const double step = std::ldexp(1.0, std::ilogb(value) - format.mantissa_bits);
    value = std::floor(value / step + 0.5) * step;
  } else if (rule == ScaleRule::even) {
    const double step = std::ldexp(1.0, -126 - format.mantissa_bits);
    value = std::floor(value / step + 0.5) * step;
  }
  int exponent = exponent_of(value);
  const double power = exponent == 0 ? 0.0 : std::ldexp(1.0, exponent - 127);
  if (rule == ScaleRule::ceil && value != power) ++exponent;
  return std::clamp(exponent - format.emax, 0, top);
}

}  // namespace mxkern::test
