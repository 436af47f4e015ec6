// tests/support/slow_codec.h: element codes in double precision, by search, from the standard's
// definition of each format alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/support/format_list.h"

namespace mxkern::test {

// The value of a code: Inf and NaN where the format has them.
template <class Format>
double slow_decode(int code) {
  constexpr PublishedFormat format = published<Format>;
  if (format.exponent_bits == 0) return (code >= 128 ? code - 256 : code) / 64.0;
  const int magnitude = code & ((1 << (format.bits - 1)) - 1);
  const double sign = code >> (format.bits - 1) ? -1.0 : 1.0;
  if (format.first_nan >= 0 && magnitude >= format.first_nan) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (magnitude == format.infinity_code) return sign * std::numeric_limits<double>::infinity();
  const int field = magnitude >> format.mantissa_bits;
  const int mantissa = magnitude & ((1 << format.mantissa_bits) - 1);
  const int implicit = field == 0 ? 0 : 1 << format.mantissa_bits;
  const int exponent = std::max(field, 1) - format.bias - format.mantissa_bits;
  return sign * std::ldexp(implicit + mantissa, exponent);
}

// The code of a sign and a magnitude code.
template <class Format>
std::uint8_t slow_signed_code(bool negative, int magnitude) {
  constexpr PublishedFormat format = published<Format>;
  if (!negative) return static_cast<std::uint8_t>(magnitude);
  if (format.exponent_bits == 0) return static_cast<std::uint8_t>(256 - magnitude);
  return static_cast<std::uint8_t>(magnitude | 1 << (format.bits - 1));
}

// The code nearest to a value that is not NaN, of two equally near ones the even one: looks at all.
template <class Format>
std::uint8_t slow_encode(double value) {
  static constexpr int count = published<Format>.max_code + 1;
  static const std::vector<double> magnitudes = [] {
    std::vector<double> values(count);
    for (int code = 0; code < count; ++code) values[code] = slow_decode<Format>(code);
    return values;
  }();
  const double magnitude = std::min(std::fabs(value), published<Format>.largest);
  int best = 0;
  for (int code = 1; code < count; ++code) {
    const double distance = std::fabs(magnitudes[code] - magnitude);
    const double shortest = std::fabs(magnitudes[best] - magnitude);
    if (distance < shortest || (distance == shortest && code % 2 == 0)) best = code;
  }
  return slow_signed_code<Format>(std::signbit(value), best);
}

// Stochastic rounding from its definition: the fraction of the way from the code below to the one
// above, in units of 2^-32, rounds up where a word of 16 bits, with half of its last place below,
// pushes it to one.
template <class Format>
std::uint8_t slow_encode_stochastic(double value, std::uint32_t word) {
  const double magnitude = std::min(std::fabs(value), published<Format>.largest);
  int below = 0;
  while (below < published<Format>.max_code && slow_decode<Format>(below + 1) <= magnitude) ++below;
  double fraction = 0.0;
  if (below < published<Format>.max_code) {
    const double floor = slow_decode<Format>(below);
    fraction = (magnitude - floor) / (slow_decode<Format>(below + 1) - floor);
  }
  const double pushed = std::floor(fraction * 0x1p32) + (word * 0x1p16 + 0x1p15);
  return slow_signed_code<Format>(std::signbit(value), below + (pushed >= 0x1p32 ? 1 : 0));
}

// The float32 patterns at which the nearest code changes, found from the midpoints of neighbours.
// Bits of positive floats are ordered as their values, so a binary search encodes: fast enough for
// tens of millions of patterns, and nothing in common with the library's arithmetic.
template <class Format>
class ThresholdCodec {
 public:
  ThresholdCodec() {
    for (int code = 0; code < published<Format>.max_code; ++code) {
      const auto middle =
          static_cast<float>((slow_decode<Format>(code) + slow_decode<Format>(code + 1)) / 2);
      // An even code keeps the midpoint above it, an odd one gives it away.
      first_above_.push_back(bits_of(middle) + (code % 2 == 0 ? 1u : 0u));
    }
  }

  const std::vector<std::uint32_t>& first_above() const { return first_above_; }

  std::uint8_t encode(std::uint32_t bits) const {
    const auto position =
        std::upper_bound(first_above_.begin(), first_above_.end(), bits & float32::magnitude_mask);
    return slow_signed_code<Format>(bits >> 31, static_cast<int>(position - first_above_.begin()));
  }

 private:
  std::vector<std::uint32_t> first_above_;
};

}  // namespace mxkern::test
