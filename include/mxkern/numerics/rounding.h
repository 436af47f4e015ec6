// mxkern/numerics/rounding.h: how an element is rounded, and stochastic rounding.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/core/math.h"
#include "mxkern/numerics/codec.h"

namespace mxkern {

enum class Rounding : std::uint8_t { nearest, stochastic };

inline constexpr Rounding all_roundings[] = {Rounding::nearest, Rounding::stochastic};

constexpr const char* name_of(Rounding rounding) {
  switch (rounding) {
    case Rounding::nearest: return "nearest";
    case Rounding::stochastic: return "stochastic";
  }
  return "unknown";
}

// Calls visitor(std::integral_constant<Rounding, R>{}) for the rounding.
template <class Visitor>
constexpr decltype(auto) visit(Rounding rounding, Visitor&& visitor) {
  if (rounding == Rounding::nearest) {
    return visitor(std::integral_constant<Rounding, Rounding::nearest>{});
  }
  return visitor(std::integral_constant<Rounding, Rounding::stochastic>{});
}

// Rounds the magnitude up with the probability of the fraction that is dropped, by adding uniform
// random bits below the last place: a word of 16 bits, and half of its last place, so that words
// lie evenly between 0 and 1. Saturates; an exact value never moves. No lane of `value` may be NaN.
template <class Format, class Float>
MXKERN_HOST_DEVICE constexpr typename Lanes<Float>::Bits encode_stochastic_lanes(
    Float value, typename Lanes<Float>::Bits word) {
  using Bits = typename Lanes<Float>::Bits;
  constexpr std::uint32_t smallest = codec::smallest_normal_bits<Format>;
  constexpr std::uint32_t smallest_field = smallest >> float32::mantissa_bits;
  constexpr int dropped = codec::dropped_bits<Format>;
  // The bits of a fraction that the word and half of its last place can carry into.
  constexpr int fraction_bits = 17;
  constexpr int spare = dropped - fraction_bits;
  static_assert(spare >= 0, "the word would reach below the last place of float32");
  // A subnormal float32 is read as if it had the implicit one: either way nothing is left of it.
  static_assert(smallest_field + spare > float32::mantissa_bits,
                "float32 has subnormals in reach of the format's last place");
  const Bits bits = bits_of(value);
  const Bits magnitude =
      lower_of<Bits>(bits & float32::magnitude_mask, broadcast<Bits>(bits_of(Format::max_value)));
  const Bits exponent = magnitude >> float32::mantissa_bits;
  const Bits significand = (magnitude & float32::mantissa_mask) | (1u << float32::mantissa_bits);
  const Bits power = higher_of<Bits>(exponent, broadcast<Bits>(smallest_field));
  // Last places of the element, with 17 bits of their fraction.
  const Bits places =
      significand >>
      lower_of<Bits>(power - exponent + static_cast<std::uint32_t>(spare), broadcast<Bits>(31u));
  const Bits rounded = (places + (word << 1 | 1u)) >> fraction_bits;
  const Bits binade = (power << float32::mantissa_bits) - smallest;
  return codec::with_sign<Format>(rounded + (binade >> dropped), bits);
}

static_assert(encode_stochastic_lanes<E4M3>(1.0f, 0xFFFFu) == encode<E4M3>(1.0f));
static_assert(encode_stochastic_lanes<E2M1>(1.25f, 0x7FFFu) == encode<E2M1>(1.0f));
static_assert(encode_stochastic_lanes<E2M1>(1.25f, 0x8000u) == encode<E2M1>(1.5f));
static_assert(encode_stochastic_lanes<INT8>(-0x1.8p-6f, 0x8000u) == 0xFE);

}  // namespace mxkern
