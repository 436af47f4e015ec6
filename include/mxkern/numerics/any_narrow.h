// mxkern/numerics/any_narrow.h: elements to codes of at most 8 bits, rounded to nearest, four at a
// time: any_nearest.h's codes in few operations, most of them of floats.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/numerics/any_nearest.h"

namespace mxkern {

// floating: a sign and a magnitude. fixed: a multiple of one last place, in two's complement or
// without a sign.
enum class NarrowKind : std::uint8_t { floating, fixed };

// Limits of what is no NaN, which take a GPU an instruction.
MXKERN_HOST_DEVICE float lower_number(float a, float b) {
  return MXKERN_ON_DEVICE(fminf(a, b), a < b ? a : b);
}
MXKERN_HOST_DEVICE float higher_number(float a, float b) {
  return MXKERN_ON_DEVICE(fmaxf(a, b), a > b ? a : b);
}

MXKERN_HOST_DEVICE float magnitude_of(float value) {
  return float_of(bits_of(value) & float32::magnitude_mask);
}

// Formats as numbers. A code is a sum modulo 2^32 from which a constant is still to be taken, and
// so is a word of four: the constants of all four are taken at once.
struct NarrowEncoder {
  NarrowKind kind;
  float lowest, largest;    // lowest: of `fixed`
  std::uint32_t smallest;   // the exponent field at which subnormals end
  std::uint32_t raise;      // fixed: the bits of what is added; else from a value's power to those
  std::uint32_t step;       // of a code, for each power
  std::uint32_t too_much;   // in four bytes
  std::uint32_t flips;      // of four bytes: from codes above the lowest one to two's complement
  std::uint32_t sign_down;  // from a byte's highest bit to the sign of a code
  std::uint32_t nan;        // four codes of NaN

  static constexpr std::uint32_t four = 0x01010101u;

  static constexpr bool takes(const AnyFormat& format, const AnyRoundingOptions& options) {
    return NearestEncoder<std::uint32_t>::takes(format, options) && format.width() <= 8 &&
           (options.saturates || !format.has_nan()) &&
           (format.is_signed || format.exponent_bits == 0);
  }

  static constexpr NarrowEncoder of(const AnyFormat& format) {
    const std::uint32_t one = 1u << float32::mantissa_bits;
    const std::uint32_t dropped =
        static_cast<std::uint32_t>(float32::mantissa_bits - format.mantissa_bits);
    NarrowEncoder made = {};
    made.largest = format.max_value();
    made.smallest = static_cast<std::uint32_t>(format.min_exponent() + float32::bias);
    made.sign_down = static_cast<std::uint32_t>(8 - format.width());
    made.nan = format.poison_code() * four;
    if (format.exponent_bits == 0 && (format.is_integer || !format.is_signed)) {
      // Half of the power more, so that negative values do not leave its octave.
      made.kind = NarrowKind::fixed;
      made.raise = ((made.smallest + dropped) << float32::mantissa_bits) | one >> 1;
      const std::uint32_t below = format.is_signed ? 1u << (format.width() - 1) : 0u;
      made.lowest = format.is_signed ? -made.largest : 0.0f;
      made.too_much = (made.raise - below) * four;
      made.flips = below * four;
      return made;
    }
    made.kind = NarrowKind::floating;
    made.raise = dropped << float32::mantissa_bits;
    const std::uint32_t octave = 1u << format.mantissa_bits;
    made.step = octave - one;
    made.too_much = (made.raise + made.smallest * octave) * four;
    return made;
  }
};

// What is added to a value to round it, and the value's power.
template <NarrowKind kind>
MXKERN_HOST_DEVICE float narrow_clamped(const NarrowEncoder& to, float value) {
  if constexpr (kind == NarrowKind::fixed) {
    return lower_number(higher_number(value, to.lowest), to.largest);
  } else {
    return lower_number(magnitude_of(value), to.largest);
  }
}
MXKERN_HOST_DEVICE std::uint32_t narrow_field(const NarrowEncoder& to, float clamped) {
  return higher_of(bits_of(clamped) >> float32::mantissa_bits, to.smallest);
}

// The code of a value that is no NaN, without its sign where that is a bit, and with what a word
// takes off.
template <NarrowKind kind>
MXKERN_HOST_DEVICE std::uint32_t narrow_sum(const NarrowEncoder& to, float value) {
  const float clamped = narrow_clamped<kind>(to, value);
  if constexpr (kind == NarrowKind::fixed) {
    return bits_of(clamped + float_of(to.raise));
  } else {
    const std::uint32_t field = narrow_field(to, clamped);
    const float magic = float_of((field << float32::mantissa_bits) + to.raise);
    return bits_of(clamped + magic) + field * to.step;
  }
}

// Four codes, a byte each, of values that are no NaN. The highest bits of the bytes of `signs` are
// their signs; all others count for nothing.
template <NarrowKind kind>
MXKERN_HOST_DEVICE std::uint32_t narrow_codes(const NarrowEncoder& to, const float* values,
                                              std::uint32_t signs) {
  std::uint32_t word = narrow_sum<kind>(to, values[0]) - to.too_much;
  word += narrow_sum<kind>(to, values[1]) * (1u << 8);
  word += narrow_sum<kind>(to, values[2]) * (1u << 16);
  word += narrow_sum<kind>(to, values[3]) * (1u << 24);
  if constexpr (kind == NarrowKind::fixed) return word ^ to.flips;
  return word | (signs & 0x80u * NarrowEncoder::four) >> to.sign_down;
}

// The value that one which is no NaN rounds to.
template <NarrowKind kind>
MXKERN_HOST_DEVICE float narrow_rounded(const NarrowEncoder& to, float value) {
  const float clamped = narrow_clamped<kind>(to, value);
  if constexpr (kind == NarrowKind::fixed) {
    return (clamped + float_of(to.raise)) - float_of(to.raise);
  } else {
    const float magic = float_of((narrow_field(to, clamped) << float32::mantissa_bits) + to.raise);
    const float magnitude = (clamped + magic) - magic;
    return float_of(bits_of(magnitude) | (bits_of(value) & float32::sign_mask));
  }
}

// Four codes of `bits` each, 1, 2, 4, 6 or 8, from the bytes that they are in, to the lowest bits.
MXKERN_HOST_DEVICE constexpr std::uint32_t narrow_packed(std::uint32_t bytes, int bits) {
  if (bits == 8) return bytes;
  const std::uint32_t pairs = (bytes & 0x00FF00FFu) | (bytes & 0xFF00FF00u) >> (8 - bits);
  return (pairs & 0xFFFFu) | (pairs & 0xFFFF0000u) >> (16 - 2 * bits);
}

static_assert(narrow_packed(0x04030201u, 4) == 0x4321u);
static_assert(narrow_packed(0x3F3F3F3Fu, 6) == 0xFFFFFFu);
static_assert(narrow_packed(0x01000101u, 1) == 0xBu);

}  // namespace mxkern
