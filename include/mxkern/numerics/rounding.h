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
  return rounding == Rounding::nearest ? "nearest" : "stochastic";
}

// Calls visitor(std::integral_constant<Rounding, R>{}) for the rounding.
template <class Visitor>
constexpr decltype(auto) visit(Rounding rounding, Visitor&& visitor) {
  if (rounding == Rounding::nearest) {
    return visitor(std::integral_constant<Rounding, Rounding::nearest>{});
  }
  return visitor(std::integral_constant<Rounding, Rounding::stochastic>{});
}

// Rounds the magnitude up with the probability of the fraction that is dropped, by adding 32
// uniform random bits below the last place; saturates; an exact value never moves. No lane of
// `value` may be NaN.
template <class Format, class Float>
MXKERN_HOST_DEVICE constexpr typename Lanes<Float>::Bits encode_stochastic_lanes(
    Float value, typename Lanes<Float>::Bits random) {
  using Bits = typename Lanes<Float>::Bits;
  constexpr std::uint32_t dropped = codec::dropped_bits<Format>;
  constexpr std::uint32_t smallest = codec::smallest_normal_bits<Format>;
  const Bits zero = broadcast<Bits>(0u);
  const Bits one = broadcast<Bits>(1u);
  const Bits bits = bits_of(value);
  const Bits magnitude =
      lower_of<Bits>(bits & float32::magnitude_mask, broadcast<Bits>(bits_of(Format::max_value)));
  // A subnormal float32 is read as if it had the implicit one: either way it is too small for a
  // whole place, and for one of the 32 bits of a fraction.
  static_assert((smallest >> float32::mantissa_bits) + dropped >= 32 + float32::mantissa_bits + 1,
                "float32 has subnormals in reach of the format's last place");
  const Bits exponent = magnitude >> float32::mantissa_bits;
  const Bits significand = (magnitude & float32::mantissa_mask) | (1u << float32::mantissa_bits);
  const Bits power = higher_of<Bits>(exponent, broadcast<Bits>(smallest >> float32::mantissa_bits));
  // The significand has 24 bits, `below` of them (or more) under the last place of the element.
  // Its fraction of a last place, as a 32-bit fixed-point number, is what the random bits meet.
  const Bits below = power - exponent + dropped;
  const Bits limit = broadcast<Bits>(32u);
  const Bits right = lower_of<Bits>(higher_of<Bits>(below, limit) - limit, broadcast<Bits>(31u));
  const Bits left = limit - lower_of<Bits>(below, limit);
  const Bits whole = significand >> lower_of<Bits>(below, broadcast<Bits>(31u));
  const Bits fraction = (significand << left) >> right;
  const Bits carry = fraction + random < fraction ? one : zero;
  const Bits binade = (power << float32::mantissa_bits) - smallest;
  return codec::with_sign<Format>(whole + carry + (binade >> static_cast<int>(dropped)), bits);
}

static_assert(encode_stochastic_lanes<E4M3>(1.0f, 0xFFFFFFFFu) == encode<E4M3>(1.0f));
static_assert(encode_stochastic_lanes<E2M1>(1.25f, 0x7FFFFFFFu) == encode<E2M1>(1.0f));
static_assert(encode_stochastic_lanes<E2M1>(1.25f, 0x80000000u) == encode<E2M1>(1.5f));
static_assert(encode_stochastic_lanes<INT8>(-0x1.8p-6f, 0x80000000u) == 0xFE);

}  // namespace mxkern
