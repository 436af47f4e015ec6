// mxkern/numerics/any_format.h: an element format whose fields are known at run time.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/numerics/format.h"

namespace mxkern {

// A format of `exponent_bits` and `mantissa_bits`: a sign (where it has one), then the exponent,
// whose bias is 2^(exponent_bits - 1) - 1, then the mantissa. Without exponent bits it is a
// magnitude in fixed point below 2: code * 2^(1 - mantissa_bits). An integer is that, with a sign
// in two's complement: of N bits it has mantissa_bits = N - 1, or N without a sign.
struct AnyFormat {
  int exponent_bits = 4;
  int mantissa_bits = 3;
  bool is_signed = true;
  bool is_integer = false;
  Specials specials = Specials::none;

  friend constexpr bool operator==(const AnyFormat&, const AnyFormat&) = default;

  static constexpr AnyFormat integer(int bits, bool is_signed = true) {
    return {0, is_signed ? bits - 1 : bits, is_signed, true, Specials::none};
  }

  // The run-time twin of a compiled format.
  template <class Format>
  static constexpr AnyFormat of() {
    if constexpr (Format::is_integer) return integer(Format::bits);
    return {Format::exponent_bits, Format::mantissa_bits, true, false, Format::specials};
  }

  // Bits of a code, without padding.
  MXKERN_HOST_DEVICE constexpr int width() const {
    return (is_signed ? 1 : 0) + exponent_bits + mantissa_bits;
  }
  // Bits that a code takes in memory: 1, 2, 4 and 6 are packed, others lie one in 8 or 16.
  MXKERN_HOST_DEVICE constexpr int stored_bits() const {
    const int bits = width();
    if (bits <= 2 || bits == 4 || bits == 6) return bits;
    return bits <= 8 ? 8 : bits <= 16 ? 16 : 32;
  }
  MXKERN_HOST_DEVICE constexpr int bias() const {
    return exponent_bits == 0 ? 0 : (1 << (exponent_bits - 1)) - 1;
  }
  MXKERN_HOST_DEVICE constexpr std::uint32_t magnitude_mask() const {
    return (1u << (exponent_bits + mantissa_bits)) - 1u;
  }
  // The code of the largest finite magnitude.
  MXKERN_HOST_DEVICE constexpr std::uint32_t max_code() const {
    if (specials == Specials::ieee) return magnitude_mask() - (1u << mantissa_bits);
    return magnitude_mask() - (specials == Specials::nan_only ? 1u : 0u);
  }
  MXKERN_HOST_DEVICE constexpr bool has_nan() const { return specials != Specials::none; }
  // The code of every element of a poisoned block.
  MXKERN_HOST_DEVICE constexpr std::uint32_t poison_code() const {
    return has_nan() ? magnitude_mask() : 0u;
  }
  // Without exponent bits, or with one that Inf and NaN have.
  MXKERN_HOST_DEVICE constexpr bool is_all_subnormal() const {
    return (max_code() >> mantissa_bits) == 0;
  }
  // Exponents of the largest power of two and of the smallest normal number.
  MXKERN_HOST_DEVICE constexpr int max_exponent() const {
    if (is_all_subnormal()) return -bias();
    return static_cast<int>(max_code() >> mantissa_bits) - bias();
  }
  MXKERN_HOST_DEVICE constexpr int min_exponent() const { return 1 - bias(); }
  // Bits below the leading one of a large element.
  MXKERN_HOST_DEVICE constexpr int bits_after_leading() const {
    return is_all_subnormal() ? mantissa_bits - 1 : mantissa_bits;
  }
  // Both are float32 where is_in_float32().
  MXKERN_HOST_DEVICE constexpr float max_value() const {
    if (is_all_subnormal()) return static_cast<float>(max_code()) * min_subnormal();
    const std::uint32_t mantissa = max_code() & ((1u << mantissa_bits) - 1u);
    return float_of(static_cast<std::uint32_t>(max_exponent() + float32::bias)
                        << float32::mantissa_bits |
                    mantissa << (float32::mantissa_bits - mantissa_bits));
  }
  MXKERN_HOST_DEVICE constexpr float min_subnormal() const {
    return float32::exp2(min_exponent() - mantissa_bits);
  }

  // Whether every value is a float32, and the fields make a format: what operations take.
  constexpr bool is_in_float32() const {
    if (exponent_bits < 0 || exponent_bits > 8 || mantissa_bits < 0 || mantissa_bits > 23)
      return false;
    if (width() < 1 || exponent_bits + mantissa_bits < 1) return false;
    if (is_integer)
      return exponent_bits == 0 && specials == Specials::none && width() >= 2 && width() <= 16;
    if (specials == Specials::ieee) return exponent_bits > 0 && mantissa_bits > 0;
    if (specials == Specials::nan_only && exponent_bits + mantissa_bits < 2) return false;
    // A largest exponent of 128 is beyond float32.
    return exponent_bits < 8 || (mantissa_bits == 0 && specials == Specials::nan_only);
  }
};

static_assert(AnyFormat::of<E4M3>().max_value() == 448.0f);
static_assert(AnyFormat::of<E5M2>().max_value() == 57344.0f);
static_assert(AnyFormat::of<INT8>().max_value() == INT8::max_value);
static_assert(AnyFormat::of<INT8>().min_subnormal() == INT8::min_subnormal);
static_assert(AnyFormat::of<E2M1>().min_subnormal() == 0.5f);
static_assert(AnyFormat::of<E3M2>().max_exponent() == E3M2::max_exponent);
static_assert(AnyFormat{8, 7, true, false, Specials::ieee}.max_value() == 0x1.FEp127f);
static_assert(AnyFormat{8, 7, true, false, Specials::ieee}.min_subnormal() == 0x1p-133f);

}  // namespace mxkern
