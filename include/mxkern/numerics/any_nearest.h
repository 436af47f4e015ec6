// mxkern/numerics/any_nearest.h: rounding to nearest in a format that is known at run time, by
// fewer operations than any_codec.h's.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/numerics/any_codec.h"

namespace mxkern {

// Rounding to nearest, which is what most calls want, in a third of the operations: adding a power
// of two whose last place is that of the result rounds as float addition does.
template <class Word>
struct NearestEncoder {
  using Machine = MachineFloat<Word>;
  using Float = typename Machine::Float;

  Word smallest;  // the bits of the power of two at which the format's subnormals end
  Word raise;     // from a value's power to the one that is added
  Word largest;   // the bits of the largest value
  Word limit;     // the bits of the first magnitude that rounds beyond it, where that is not it
  Word beyond, beyond_code;  // and what that becomes: bits and code
  int dropped;
  int sign_down;  // from a float's sign to a code's, where there is one
  Word sign, twos, drops_negative, code_mask, nan;
  Float zero;  // -0 keeps the sign of a value that is 0, and 0 takes it

  // Whether these are options for it: else AnyEncoder has what to do.
  MXKERN_HOST_DEVICE static constexpr bool takes(const AnyFormat& format,
                                                 const AnyRoundingOptions& options) {
    constexpr int most_exponent_bits = AnyEncoder<Word>::width == 32 ? 7 : 8;
    return options.rounding == AnyRounding::nearest && options.subnormals &&
           format.exponent_bits <= most_exponent_bits &&
           format.mantissa_bits < Machine::mantissa_bits;
  }

  MXKERN_HOST_DEVICE static constexpr NearestEncoder of(const AnyFormat& format,
                                                        const AnyRoundingOptions& options) {
    constexpr Word infinite = (~Word{0} >> (Machine::mantissa_bits + 1)) << Machine::mantissa_bits;
    NearestEncoder made = {};
    made.limit = ~Word{0};
    if (!options.saturates && format.has_nan()) {
      const int last_place = format.max_exponent() - format.bits_after_leading();
      const Float half = static_cast<Float>(float32::exp2(last_place)) / 2;
      const bool stays = format.max_code() % 2 == 0;  // the even one of a tie
      made.limit = bits_of(static_cast<Float>(format.max_value()) + half) + (stays ? 1 : 0);
      const bool is_ieee = format.specials == Specials::ieee;
      made.beyond = is_ieee ? infinite : infinite | Word{1} << (Machine::mantissa_bits - 1);
      made.beyond_code = is_ieee ? format.max_code() + 1 : format.poison_code();
    }
    made.smallest = static_cast<Word>(format.min_exponent() + Machine::bias)
                    << Machine::mantissa_bits;
    made.dropped = Machine::mantissa_bits - format.mantissa_bits;
    made.raise = static_cast<Word>(made.dropped) << Machine::mantissa_bits;
    made.largest = bits_of(static_cast<Float>(format.max_value()));
    const bool has_sign = format.is_signed && !format.is_integer;
    made.sign_down = AnyEncoder<Word>::width - format.width();
    made.sign = has_sign ? Word{1} << (format.width() - 1) : 0;
    made.twos = format.is_signed && format.is_integer ? ~Word{0} : 0;
    made.drops_negative = format.is_signed ? 0 : ~Word{0};
    made.code_mask = ~Word{0} >> (AnyEncoder<Word>::width - format.width());
    made.nan = format.poison_code();
    made.zero = has_sign ? -Float{0} : Float{0};
    return made;
  }
};

// The magnitude of each lane, or 0 where a negative one has no code.
template <class Bits, class Word>
MXKERN_HOST_DEVICE constexpr Bits coded_magnitude(const NearestEncoder<Word>& to, Bits bits) {
  const Bits negative = broadcast<Bits>(Word{0}) - (bits >> (AnyEncoder<Word>::width - 1));
  return bits & (~Word{0} >> 1) & ~(negative & to.drops_negative);
}

// As encode_any.
template <class Float, class Word>
MXKERN_HOST_DEVICE constexpr typename Lanes<Float>::Bits encode_any(const NearestEncoder<Word>& to,
                                                                    Float value) {
  using Bits = typename Lanes<Float>::Bits;
  using Machine = MachineFloat<Word>;
  constexpr Word infinite = (~Word{0} >> (Machine::mantissa_bits + 1)) << Machine::mantissa_bits;
  const Bits bits = bits_of(value);
  const Bits unclamped = coded_magnitude<Bits>(to, bits);
  const Bits magnitude = lower_of<Bits>(unclamped, broadcast<Bits>(to.largest));
  const Bits power = higher_of<Bits>(magnitude & infinite, broadcast<Bits>(to.smallest));
  const Bits magic = power + to.raise;
  const Bits significand = bits_of(float_of<Bits>(magnitude) + float_of<Bits>(magic)) - magic;
  const Bits rounded = significand + ((power - to.smallest) >> to.dropped);
  const Bits code =
      unclamped >= broadcast<Bits>(to.limit) ? broadcast<Bits>(to.beyond_code) : rounded;
  const Bits flips = (broadcast<Bits>(Word{0}) - (bits >> (AnyEncoder<Word>::width - 1))) & to.twos;
  const Bits signed_code =
      (((code ^ flips) - flips) & to.code_mask) | ((bits >> to.sign_down) & to.sign);
  return (bits & (~Word{0} >> 1)) > broadcast<Bits>(infinite) ? broadcast<Bits>(to.nan)
                                                              : signed_code;
}

// The value that each lane's code stands for. What a NaN becomes does not matter.
template <class Float, class Word>
MXKERN_HOST_DEVICE constexpr Float round_any(const NearestEncoder<Word>& to, Float value) {
  using Bits = typename Lanes<Float>::Bits;
  using Machine = MachineFloat<Word>;
  constexpr Word infinite = (~Word{0} >> (Machine::mantissa_bits + 1)) << Machine::mantissa_bits;
  const Bits bits = bits_of(value);
  const Bits unclamped = coded_magnitude<Bits>(to, bits);
  const Bits magnitude = lower_of<Bits>(unclamped, broadcast<Bits>(to.largest));
  const Bits power = higher_of<Bits>(magnitude & infinite, broadcast<Bits>(to.smallest));
  const Float magic = float_of<Bits>(power + to.raise);
  const Bits rounded = bits_of<Float>((float_of<Bits>(magnitude) + magic) - magic);
  const Bits value_bits =
      unclamped >= broadcast<Bits>(to.limit) ? broadcast<Bits>(to.beyond) : rounded;
  const Bits sign = bits & (Word{1} << (AnyEncoder<Word>::width - 1));
  return float_of<Bits>(value_bits | sign) + to.zero;
}

// Rounding to nearest in a format with the exponents of float32, bfloat16 for example: to a
// multiple of its last place in the bits themselves, which carry into the exponent, and at its end
// to Inf.
struct BitRounder {
  int dropped;
  std::uint32_t half_less_one, kept_mask, largest;
  std::uint32_t drops_negative;

  MXKERN_HOST_DEVICE static constexpr bool takes(const AnyFormat& format,
                                                 const AnyRoundingOptions& options) {
    return options.rounding == AnyRounding::nearest && options.subnormals &&
           format.exponent_bits == 8 && format.mantissa_bits > 0 &&
           format.mantissa_bits < float32::mantissa_bits;
  }
  MXKERN_HOST_DEVICE static constexpr BitRounder of(const AnyFormat& format,
                                                    const AnyRoundingOptions& options) {
    const int dropped = float32::mantissa_bits - format.mantissa_bits;
    const int shift = dropped < 1 ? 1 : dropped;  // of another format
    return {shift, (1u << (shift - 1)) - 1u, ~((1u << shift) - 1u),
            options.saturates ? bits_of(format.max_value()) : float32::infinity_bits,
            format.is_signed ? 0u : ~0u};
  }
};

// The value that each lane rounds to. What a NaN becomes does not matter.
template <class Float>
MXKERN_HOST_DEVICE constexpr Float round_any(const BitRounder& to, Float value) {
  using Bits = typename Lanes<Float>::Bits;
  const Bits bits = bits_of(value);
  const Bits negative = broadcast<Bits>(0u) - (bits >> 31);
  const Bits magnitude = bits & float32::magnitude_mask & ~(negative & to.drops_negative);
  const Bits rounded =
      (magnitude + to.half_less_one + ((magnitude >> to.dropped) & 1u)) & to.kept_mask;
  const Bits clamped = lower_of<Bits>(rounded, broadcast<Bits>(to.largest));
  return float_of<Bits>(clamped | (negative & ~to.drops_negative & float32::sign_mask));
}

// How elements become codes: by the shorter way where it takes the options.
template <class Word>
struct AnyWay {
  AnyEncoder<Word> encoder;
  NearestEncoder<Word> nearest;
  BitRounder bits;  // of float32
  bool is_nearest, is_bits;

  MXKERN_HOST_DEVICE static constexpr AnyWay of(const AnyFormat& format,
                                                const AnyRoundingOptions& options) {
    return {AnyEncoder<Word>::of(format, options), NearestEncoder<Word>::of(format, options),
            BitRounder::of(format, options), NearestEncoder<Word>::takes(format, options),
            sizeof(Word) == 4 && BitRounder::takes(format, options)};
  }
};

}  // namespace mxkern
