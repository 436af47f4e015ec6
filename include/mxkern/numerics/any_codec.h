// mxkern/numerics/any_codec.h: encode and decode with a format and a rounding known at run time.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/numerics/any_format.h"

namespace mxkern {

// Lanes of double are those of the numerics as well: their bits have 64.
template <>
struct Lanes<double> {
  using Bits = std::uint64_t;
};
template <>
struct Lanes<std::uint64_t> {
  using Float = double;
};

// stochastic: up with the probability of the fraction that is dropped, by 1 to 16 random bits.
enum class AnyRounding : std::uint8_t { nearest, nearest_away, toward_zero, up, down, stochastic };

inline constexpr AnyRounding all_any_roundings[] = {
    AnyRounding::nearest, AnyRounding::nearest_away, AnyRounding::toward_zero,
    AnyRounding::up,      AnyRounding::down,         AnyRounding::stochastic};

constexpr const char* name_of(AnyRounding rounding) {
  switch (rounding) {
    case AnyRounding::nearest: return "nearest";
    case AnyRounding::nearest_away: return "nearest_away";
    case AnyRounding::toward_zero: return "toward_zero";
    case AnyRounding::up: return "up";
    case AnyRounding::down: return "down";
    case AnyRounding::stochastic: return "stochastic";
  }
  return "unknown";
}

// How elements are rounded.
struct AnyRoundingOptions {
  AnyRounding rounding = AnyRounding::nearest;
  int random_bits = 16;    // of stochastic rounding: the top ones of an element's word
  bool subnormals = true;  // false: what rounds to a subnormal becomes 0
  bool saturates = true;   // false: beyond the largest value lies Inf, or NaN where there is none
  friend constexpr bool operator==(const AnyRoundingOptions&, const AnyRoundingOptions&) = default;
};

// The fields of the machine's formats.
template <class Word>
struct MachineFloat;
template <>
struct MachineFloat<std::uint32_t> {
  using Float = float;
  static constexpr int mantissa_bits = float32::mantissa_bits, bias = float32::bias;
};
template <>
struct MachineFloat<std::uint64_t> {
  using Float = double;
  static constexpr int mantissa_bits = 52, bias = 1023;
};

// A format and a rounding as numbers, so that one loop without branches serves all: the fraction
// that is dropped, as `Word` wide fixed point, rounds up where adding a number to it carries.
template <class Word>
struct AnyEncoder {
  using Machine = MachineFloat<Word>;
  static constexpr int width = 8 * static_cast<int>(sizeof(Word));

  Word min_field;  // the exponent field at which the format's subnormals end
  Word dropped;    // bits below the last place of a normal element
  int mantissa_bits;
  Word addend[2];  // by sign
  Word odd;        // 1: ties go to even
  Word sticky;     // 1: what lies below the fraction counts
  int random_down, random_up;
  Word flush_below;  // codes below are 0
  Word max_code;
  Word overflow[2];     // by sign: the code of a finite value beyond the largest
  Word infinity, nan;   // the codes of Inf and NaN
  Word twos;            // all ones: negative codes are in two's complement
  Word drops_negative;  // all ones: negative values are 0
  Word sign_bit, code_mask;

  MXKERN_HOST_DEVICE static constexpr AnyEncoder of(const AnyFormat& format,
                                                    const AnyRoundingOptions& options) {
    const Word half = Word{1} << (width - 1), most = ~Word{0};
    AnyEncoder made = {};
    made.min_field = static_cast<Word>(format.min_exponent() + Machine::bias);
    made.dropped = static_cast<Word>(Machine::mantissa_bits - format.mantissa_bits);
    made.mantissa_bits = format.mantissa_bits;
    const bool saturates = options.saturates || format.specials == Specials::none;
    const Word max_code = format.max_code();
    const Word beyond = format.specials == Specials::ieee ? max_code + 1 : format.poison_code();
    made.max_code = max_code;
    made.infinity = saturates ? max_code : beyond;
    made.overflow[0] = made.overflow[1] = made.infinity;
    switch (options.rounding) {
      case AnyRounding::nearest:
        made.addend[0] = made.addend[1] = half - 1;
        made.odd = 1;
        break;
      case AnyRounding::nearest_away: made.addend[0] = made.addend[1] = half; break;
      case AnyRounding::toward_zero: made.overflow[0] = made.overflow[1] = max_code; break;
      case AnyRounding::up:
        made.addend[0] = most;
        made.overflow[1] = max_code;
        made.sticky = 1;
        break;
      case AnyRounding::down:
        made.addend[1] = most;
        made.overflow[0] = max_code;
        made.sticky = 1;
        break;
      case AnyRounding::stochastic:
        made.random_down = 16 - options.random_bits;
        made.random_up = width - options.random_bits;
        made.addend[0] = made.addend[1] = half >> options.random_bits;
        break;
    }
    if (!options.subnormals) made.flush_below = Word{1} << format.mantissa_bits;
    made.nan = format.poison_code();
    made.sign_bit = format.is_signed && !format.is_integer ? Word{format.magnitude_mask()} + 1 : 0;
    made.twos = format.is_signed && format.is_integer ? most : 0;
    made.drops_negative = format.is_signed ? 0 : most;
    made.code_mask = ~Word{0} >> (width - format.width());
    return made;
  }
};

// The code of each lane; `random` has an element's word of 16 bits in each, or zeros. A NaN becomes
// the format's NaN, or 0.
template <class Float, class Word>
MXKERN_HOST_DEVICE constexpr typename Lanes<Float>::Bits encode_any(
    const AnyEncoder<Word>& to, Float value, typename Lanes<Float>::Bits random) {
  using Bits = typename Lanes<Float>::Bits;
  using Machine = MachineFloat<Word>;
  constexpr int width = AnyEncoder<Word>::width;
  constexpr Word implicit = Word{1} << Machine::mantissa_bits;
  constexpr Word infinite = (~Word{0} >> (Machine::mantissa_bits + 1)) << Machine::mantissa_bits;
  const Bits zero = broadcast<Bits>(Word{0}), last = broadcast<Bits>(Word{width - 1});
  const Bits bits = bits_of(value);
  const Bits magnitude = bits & (~Word{0} >> 1);
  const Bits negative = zero - (bits >> (width - 1));
  const Bits field = magnitude >> Machine::mantissa_bits;
  const Bits exponent = higher_of<Bits>(field, broadcast<Bits>(Word{1}));
  const Bits significand =
      (magnitude & (implicit - 1)) | (field > zero ? broadcast<Bits>(implicit) : zero);
  const Bits power = higher_of<Bits>(exponent, broadcast<Bits>(to.min_field));
  const Bits down = power - exponent + to.dropped;
  const Bits near = lower_of<Bits>(down, last);
  const Bits kept = significand >> near;
  // Shifted in two steps, neither of which is as wide as the word.
  const Bits far = higher_of<Bits>(down, last + Word{1}) - (last + Word{1});
  const Bits below = significand > zero ? broadcast<Bits>(to.sticky) : zero;
  const Bits fraction = down > last ? (significand >> lower_of<Bits>(far, last)) | below
                                    : (significand << 1) << (last - near);
  const Bits addend =
      ((broadcast<Bits>(to.addend[0]) & ~negative) | (broadcast<Bits>(to.addend[1]) & negative)) +
      (kept & to.odd) + ((random >> to.random_down) << to.random_up);
  const Bits carry = fraction + addend < fraction ? broadcast<Bits>(Word{1}) : zero;
  Bits code = kept + carry + ((power - to.min_field) << to.mantissa_bits);
  code = code < broadcast<Bits>(to.flush_below) ? zero : code;
  const Bits overflow =
      (broadcast<Bits>(to.overflow[0]) & ~negative) | (broadcast<Bits>(to.overflow[1]) & negative);
  code = code > broadcast<Bits>(to.max_code) ? overflow : code;
  code = magnitude == broadcast<Bits>(infinite) ? broadcast<Bits>(to.infinity) : code;
  const Bits flips = negative & to.twos;
  code = (((code & ~(negative & to.drops_negative)) ^ flips) - flips) & to.code_mask;
  code = code | (negative & to.sign_bit);
  return magnitude > broadcast<Bits>(infinite) ? broadcast<Bits>(to.nan) : code;
}

// The way back, as numbers.
template <class Word>
struct AnyDecoder {
  using Machine = MachineFloat<Word>;
  using Float = typename Machine::Float;

  Word sign_bit, twos, magnitude_mask;
  Word subnormal_end;  // the first code of a normal number
  Float min_subnormal;
  int dropped;
  Word rebias;
  Word max_code;  // what is above is Inf, if `infinity`, or NaN
  Word infinity;

  MXKERN_HOST_DEVICE static constexpr AnyDecoder of(const AnyFormat& format) {
    AnyDecoder made = {};
    constexpr Word none = ~Word{0};
    const Word all = none >> (AnyEncoder<Word>::width - format.width());
    made.sign_bit = format.is_signed ? Word{format.magnitude_mask()} + 1 : 0;
    made.twos = format.is_signed && format.is_integer ? none : 0;
    made.magnitude_mask = made.twos != 0 ? all : Word{format.magnitude_mask()};
    made.subnormal_end = Word{1} << (format.mantissa_bits + (format.exponent_bits == 0 ? 1 : 0));
    made.min_subnormal = static_cast<Float>(format.min_subnormal());
    made.dropped = Machine::mantissa_bits - format.mantissa_bits;
    made.rebias = static_cast<Word>(format.min_exponent() + Machine::bias - 1)
                  << Machine::mantissa_bits;
    made.max_code = format.has_nan() ? Word{format.max_code()} : none;
    made.infinity = format.specials == Specials::ieee ? Word{format.max_code()} + 1 : none;
    return made;
  }
};

// The exact values of codes, one a lane; bits above the format's width are ignored. NaNs are the
// quiet one.
template <class Bits, class Word>
MXKERN_HOST_DEVICE constexpr typename Lanes<Bits>::Float decode_any(const AnyDecoder<Word>& from,
                                                                    Bits code) {
  using Float = typename Lanes<Bits>::Float;
  using Machine = MachineFloat<Word>;
  constexpr int width = AnyEncoder<Word>::width;
  // 2^mantissa_bits has a last place of one: its low bits are an integer.
  constexpr Word magic = static_cast<Word>(Machine::bias + Machine::mantissa_bits)
                         << Machine::mantissa_bits;
  constexpr Word infinite = (~Word{0} >> (Machine::mantissa_bits + 1)) << Machine::mantissa_bits;
  constexpr Word quiet = infinite | Word{1} << (Machine::mantissa_bits - 1);
  const Bits zero = broadcast<Bits>(Word{0});
  const Bits negative = (code & from.sign_bit) > zero ? broadcast<Bits>(~Word{0}) : zero;
  const Bits flips = negative & from.twos;
  const Bits magnitude = ((code ^ flips) - flips) & from.magnitude_mask;
  const Float count = float_of<Bits>(magnitude | magic) - float_of<Bits>(broadcast<Bits>(magic));
  const Bits small = bits_of<Float>(count * from.min_subnormal);
  const Bits normal = (magnitude << from.dropped) + from.rebias;
  const Bits finite = magnitude < broadcast<Bits>(from.subnormal_end) ? small : normal;
  const Bits sign = negative & (Word{1} << (width - 1));
  const Bits special = magnitude == broadcast<Bits>(from.infinity)
                           ? (sign | broadcast<Bits>(infinite))
                           : broadcast<Bits>(quiet);
  return float_of<Bits>(magnitude > broadcast<Bits>(from.max_code) ? special : (finite | sign));
}

// The code of one value, and the value of one code.
MXKERN_HOST_DEVICE constexpr std::uint32_t encode(const AnyFormat& format,
                                                  const AnyRoundingOptions& options, float value,
                                                  std::uint32_t random = 0) {
  return encode_any<float>(AnyEncoder<std::uint32_t>::of(format, options), value, random);
}
MXKERN_HOST_DEVICE constexpr std::uint32_t encode(const AnyFormat& format,
                                                  const AnyRoundingOptions& options, double value,
                                                  std::uint32_t random = 0) {
  return static_cast<std::uint32_t>(encode_any<double>(
      AnyEncoder<std::uint64_t>::of(format, options), value, std::uint64_t{random}));
}
MXKERN_HOST_DEVICE constexpr float decode(const AnyFormat& format, std::uint32_t code) {
  return decode_any<std::uint32_t>(AnyDecoder<std::uint32_t>::of(format), code);
}

static_assert(encode(AnyFormat::of<E4M3>(), {}, 448.0f) == 0x7E);
static_assert(encode(AnyFormat::of<E4M3>(), {}, 1e30f) == 0x7E);
static_assert(encode(AnyFormat::of<E4M3>(), {}, -0.0f) == 0x80);
static_assert(encode(AnyFormat::of<E2M1>(), {}, 2.5f) == 4);
static_assert(encode(AnyFormat::of<INT8>(), {}, -1.0f) == 0xC0);
static_assert(decode(AnyFormat::of<INT8>(), 0x80) == -2.0f);
static_assert(decode(AnyFormat::of<E5M2>(), 0x7C) == float_of(float32::infinity_bits));
static_assert(encode(AnyFormat::of<E2M1>(), {AnyRounding::up}, 1e-30f) == 1);
static_assert(encode(AnyFormat::of<E2M1>(), {AnyRounding::up}, 1e-300) == 1);
static_assert(encode(AnyFormat::of<E2M1>(), {AnyRounding::toward_zero}, 5.99f) == 6);

}  // namespace mxkern
