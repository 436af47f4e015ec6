// mxkern/numerics/format.h: the element formats; every limit is derived from (exponent, mantissa).
// Source: OCP Microscaling Formats (MX) v1.0, section 5.3.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"

namespace mxkern {

// Which codes of a format are not finite.
enum class Specials { none, nan_only, ieee };

// A floating-point format of 1 + ExponentBits + MantissaBits bits. Codes of 4 and 6 bits are
// packed, others lie one a byte; one of 9 bits has no room for its sign, and is for magnitudes
// alone.
template <int ExponentBits, int MantissaBits, Specials Kind>
struct FloatFormat {
  static constexpr bool is_integer = false;
  static constexpr int exponent_bits = ExponentBits;
  static constexpr int mantissa_bits = MantissaBits;
  static constexpr Specials specials = Kind;
  static constexpr int width = 1 + ExponentBits + MantissaBits;      // of a code
  static constexpr int bits = width == 4 || width == 6 ? width : 8;  // that it takes in memory
  static_assert(width <= 9, "codes are bytes");
  static constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  static constexpr std::uint8_t sign_mask = static_cast<std::uint8_t>(1u << (width - 1));
  static constexpr std::uint8_t magnitude_mask = static_cast<std::uint8_t>(sign_mask - 1);

  // The code of the largest finite magnitude: all ones, less what Inf and NaN take.
  static constexpr std::uint8_t max_code =
      magnitude_mask - (Kind == Specials::none       ? 0
                        : Kind == Specials::nan_only ? 1
                                                     : (1 << MantissaBits));
  static constexpr bool has_nan = Kind != Specials::none;
  // The code of every element of a poisoned block.
  static constexpr std::uint8_t poison_code = has_nan ? magnitude_mask : 0;

  // Exponents of the largest power of two and of the smallest normal number.
  static constexpr int max_exponent = (max_code >> MantissaBits) - bias;
  static constexpr int min_exponent = 1 - bias;
  static constexpr float max_value =
      float32::exp2(max_exponent - MantissaBits) *
      static_cast<float>((1 << MantissaBits) + (max_code & ((1 << MantissaBits) - 1)));
  static constexpr float min_subnormal = float32::exp2(min_exponent - MantissaBits);
};

// Two's complement fixed point with FractionBits: code / 2^FractionBits. To the codec it is the
// single binade [1, 2) with its subnormals, and a sign that negates.
template <int FractionBits>
struct IntegerFormat {
  static_assert(FractionBits == 6, "the codec's integers have 8 bits");
  static constexpr bool is_integer = true;
  static constexpr int exponent_bits = 0;
  static constexpr int mantissa_bits = FractionBits;
  static constexpr Specials specials = Specials::none;
  static constexpr int bits = 2 + FractionBits;
  static constexpr std::uint8_t max_code = (1u << (bits - 1)) - 1;
  static constexpr bool has_nan = false;
  static constexpr std::uint8_t poison_code = 0;
  static constexpr int max_exponent = 0;
  static constexpr int min_exponent = 0;
  static constexpr float min_subnormal = float32::exp2(-FractionBits);
  static constexpr float max_value = max_code * min_subnormal;
};

struct E4M3 : FloatFormat<4, 3, Specials::nan_only> {
  static constexpr const char* name = "e4m3";
};
struct E5M2 : FloatFormat<5, 2, Specials::ieee> {
  static constexpr const char* name = "e5m2";
};
struct E3M2 : FloatFormat<3, 2, Specials::none> {
  static constexpr const char* name = "e3m2";
};
struct E2M3 : FloatFormat<2, 3, Specials::none> {
  static constexpr const char* name = "e2m3";
};
struct E2M1 : FloatFormat<2, 1, Specials::none> {
  static constexpr const char* name = "e2m1";
};
struct INT8 : IntegerFormat<6> {
  static constexpr const char* name = "int8";
};

// A code path that is shorter than the generic codec asks for all fields of a format. A format
// that is none of these, whatever its width, is encoded and decoded by the generic codec.
template <class Format, int ExponentBits, int MantissaBits, Specials Kind>
inline constexpr bool has_fields =
    !Format::is_integer && Format::exponent_bits == ExponentBits &&
    Format::mantissa_bits == MantissaBits && Format::specials == Kind;
template <class Format>
inline constexpr bool is_fp4 = has_fields<Format, 2, 1, Specials::none>;
template <class Format>
inline constexpr bool is_fp6 =
    has_fields<Format, 3, 2, Specials::none> || has_fields<Format, 2, 3, Specials::none>;
template <class Format>
inline constexpr bool is_fp8 =
    has_fields<Format, 4, 3, Specials::nan_only> || has_fields<Format, 5, 2, Specials::ieee>;
template <class Format>
inline constexpr bool is_ocp_float = is_fp4<Format> || is_fp6<Format> || is_fp8<Format>;

static_assert(E4M3::max_value == 448.0f && E4M3::min_subnormal == 0x1p-9f);
static_assert(E5M2::max_value == 57344.0f && E5M2::min_subnormal == 0x1p-16f);
static_assert(E3M2::max_value == 28.0f && E3M2::min_subnormal == 0x1p-4f);
static_assert(E2M3::max_value == 7.5f && E2M3::min_subnormal == 0x1p-3f);
static_assert(E2M1::max_value == 6.0f && E2M1::min_subnormal == 0.5f);
static_assert(INT8::max_value == 127.0f / 64.0f && INT8::bits == 8);
static_assert(E4M3::max_exponent == 8 && E5M2::max_exponent == 15 && E2M1::max_exponent == 2);

}  // namespace mxkern
