// mxkern/numerics/codec.h: a float32 to the code of an element, and back.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/numerics/format.h"

namespace mxkern {

namespace codec {

// Bits of the float32 significand below the last place of a normal element.
template <class Format>
inline constexpr int dropped_bits = float32::mantissa_bits - Format::mantissa_bits;

// The bits of the float32 power of two at which the format's subnormals end.
template <class Format>
inline constexpr std::uint32_t smallest_normal_bits =
    static_cast<std::uint32_t>(Format::min_exponent + float32::bias) << float32::mantissa_bits;

// Puts the sign of the float32 `bits` on a magnitude code.
template <class Format, class Bits>
MXKERN_HOST_DEVICE constexpr Bits with_sign(Bits code, Bits bits) {
  if constexpr (Format::is_integer) {
    const Bits negative = broadcast<Bits>(0u) - (bits >> 31);
    return ((code ^ negative) - negative) & 0xFFu;
  } else {
    return code | ((bits >> (32 - Format::width)) & static_cast<std::uint32_t>(Format::sign_mask));
  }
}

}  // namespace codec

// The nearest code, ties to even, one a lane; beyond the largest value (Inf too) the code of the
// largest value. Keeps the sign of zero (integers have none). No lane of `value` may be NaN.
template <class Format, class Float>
MXKERN_HOST_DEVICE constexpr typename Lanes<Float>::Bits encode_lanes(Float value) {
  using Bits = typename Lanes<Float>::Bits;
  constexpr int dropped = codec::dropped_bits<Format>;
  const Bits smallest = broadcast<Bits>(codec::smallest_normal_bits<Format>);
  const Bits largest = broadcast<Bits>(bits_of(Format::max_value));
  const Bits bits = bits_of(value);
  const Bits magnitude = lower_of<Bits>(bits & float32::magnitude_mask, largest);
  // Adding 2^dropped times the value's own power of two (at least the smallest normal's) drops the
  // bits below the format's last place, with the rounding that float32 addition has.
  const Bits power = higher_of<Bits>(magnitude & float32::exponent_mask, smallest);
  const Bits magic = power + (static_cast<std::uint32_t>(dropped) << float32::mantissa_bits);
  const Bits significand = bits_of(float_of(magnitude) + float_of(magic)) - magic;
  const Bits code = significand + ((power - smallest) >> dropped);
  return codec::with_sign<Format>(code, bits);
}

// The exact values of codes, one a lane; bits above the format's width are ignored. A NaN code of
// either sign is the quiet NaN 0x7FC00000.
template <class Format, class Bits>
MXKERN_HOST_DEVICE constexpr typename Lanes<Bits>::Float decode_lanes(Bits code) {
  using Float = typename Lanes<Bits>::Float;
  if constexpr (Format::is_integer) {
    // 1.5 * 2^23 has a last place of one: its low bits plus the signed code, minus itself.
    constexpr float magic = 0x1.8p23f;
    const Bits sign_extended = ((code & 0xFFu) ^ 0x80u) - 0x80u;
    return (float_of<Bits>(sign_extended + bits_of(magic)) - magic) * Format::min_subnormal;
  } else {
    constexpr int dropped = codec::dropped_bits<Format>;
    constexpr std::uint32_t rebias = static_cast<std::uint32_t>(float32::bias - Format::bias)
                                     << float32::mantissa_bits;
    const Bits magnitude = code & static_cast<std::uint32_t>(Format::magnitude_mask);
    // A subnormal is read with exponent field 1 and an implicit one, which is then subtracted.
    const auto subnormal = magnitude < broadcast<Bits>(1u << Format::mantissa_bits);
    const Bits field =
        subnormal ? broadcast<Bits>(1u << float32::mantissa_bits) : broadcast<Bits>(0u);
    const Float implicit =
        subnormal ? broadcast<Float>(float32::exp2(Format::min_exponent)) : broadcast<Float>(0.0f);
    const Bits unsigned_bits =
        bits_of<Float>(float_of<Bits>((magnitude << dropped) + rebias + field) - implicit);
    const Bits sign = (code & static_cast<std::uint32_t>(Format::sign_mask))
                      << (32 - Format::width);
    Bits bits = unsigned_bits | sign;
    if constexpr (Format::has_nan) {
      // Every NaN code is the same NaN: processors disagree about the signs of NaNs that they make.
      const Bits largest = broadcast<Bits>(Format::max_code);
      Bits special = broadcast<Bits>(float32::nan_bits);
      if constexpr (Format::specials == Specials::ieee) {
        special = magnitude > largest + 1u ? special : (sign | float32::infinity_bits);
      }
      bits = magnitude > largest ? special : bits;
    }
    return float_of<Bits>(bits);
  }
}

// The code of one value. A NaN becomes the format's NaN, or 0 where it has none; which values are
// NaNs the bits say, as programs may be compiled not to expect any.
template <class Format>
MXKERN_HOST_DEVICE constexpr std::uint8_t encode(float value) {
  const bool is_nan = (bits_of(value) & float32::magnitude_mask) > float32::infinity_bits;
  return is_nan ? Format::poison_code : static_cast<std::uint8_t>(encode_lanes<Format>(value));
}

// The value of one code.
template <class Format>
MXKERN_HOST_DEVICE constexpr float decode(std::uint8_t code) {
  return decode_lanes<Format>(static_cast<std::uint32_t>(code));
}

static_assert(encode<E4M3>(448.0f) == 0x7E && encode<E4M3>(1e30f) == 0x7E);
static_assert(encode<E4M3>(-0.0f) == 0x80 && decode<E4M3>(0x01) == 0x1p-9f);
static_assert(encode<E2M1>(2.5f) == 4 && encode<E2M1>(5.0f) == 6);  // ties: 2.5 -> 2, 5 -> 4
static_assert(encode<INT8>(-1.0f) == 0xC0 && encode<INT8>(-3.0f) == 0x81);
static_assert(decode<INT8>(0x80) == -2.0f && decode<E5M2>(0x7B) == 57344.0f);

}  // namespace mxkern
