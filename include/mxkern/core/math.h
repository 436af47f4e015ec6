// mxkern/core/math.h: integer helpers and the bits of a float32.
#pragma once

#include <cstdint>

#include "mxkern/core/platform.h"

namespace mxkern {

MXKERN_HOST_DEVICE constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

MXKERN_HOST_DEVICE constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}

// a * b modulo 2^64, for extents that somebody may refuse later.
constexpr std::int64_t wrapped_product(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

// The per-element functions of the numerics are written once, over a type Float that is float or
// a vector of floats, with the operators that both have. Lanes<Float> names its unsigned partner;
// whoever brings a vector type specializes it.
template <class Float>
struct Lanes;

template <>
struct Lanes<float> {
  using Bits = std::uint32_t;
};
template <>
struct Lanes<std::uint32_t> {
  using Float = float;
};

template <class Float>
MXKERN_HOST_DEVICE constexpr typename Lanes<Float>::Bits bits_of(Float value) {
  return __builtin_bit_cast(typename Lanes<Float>::Bits, value);
}

template <class Bits>
MXKERN_HOST_DEVICE constexpr typename Lanes<Bits>::Float float_of(Bits bits) {
  return __builtin_bit_cast(typename Lanes<Bits>::Float, bits);
}

// A scalar in every lane.
template <class T, class Scalar>
MXKERN_HOST_DEVICE constexpr T broadcast(Scalar scalar) {
  return scalar - T{};  // unlike a sum with zeros it keeps the sign of -0
}

template <class T>
MXKERN_HOST_DEVICE constexpr T lower_of(T a, T b) {
  return a < b ? a : b;
}

template <class T>
MXKERN_HOST_DEVICE constexpr T higher_of(T a, T b) {
  return a > b ? a : b;
}

// The layout of an IEEE float32, and the values built from it.
namespace float32 {

inline constexpr int mantissa_bits = 23;
inline constexpr int bias = 127;
inline constexpr std::uint32_t sign_mask = 0x80000000u;
inline constexpr std::uint32_t magnitude_mask = 0x7FFFFFFFu;
inline constexpr std::uint32_t exponent_mask = 0x7F800000u;
inline constexpr std::uint32_t mantissa_mask = 0x007FFFFFu;
inline constexpr std::uint32_t infinity_bits = exponent_mask;
inline constexpr std::uint32_t nan_bits = 0x7FC00000u;
inline constexpr std::uint32_t largest_bits = 0x7F7FFFFFu;

MXKERN_HOST_DEVICE constexpr std::uint32_t exponent_field(std::uint32_t bits) {
  return (bits & exponent_mask) >> mantissa_bits;
}

MXKERN_HOST_DEVICE constexpr std::uint32_t mantissa_field(std::uint32_t bits) {
  return bits & mantissa_mask;
}

MXKERN_HOST_DEVICE constexpr bool is_finite(std::uint32_t bits) {
  return (bits & magnitude_mask) < infinity_bits;
}

MXKERN_HOST_DEVICE constexpr float largest() { return float_of(largest_bits); }

// 2^exponent for -149 <= exponent <= 127, subnormals included.
MXKERN_HOST_DEVICE constexpr float exp2(int exponent) {
  return exponent >= 1 - bias
             ? float_of(static_cast<std::uint32_t>(exponent + bias) << mantissa_bits)
             : float_of(1u << (exponent + bias - 1 + mantissa_bits));
}

// The bits of the float32 nearest to `value`, ties to even, whatever the thread's floating-point
// settings are. NaNs are one.
MXKERN_HOST_DEVICE constexpr std::uint32_t nearest_bits(double value) {
  constexpr int mantissa_bits_64 = 52, bias_64 = 1023, lowest_normal = 1 - bias;
  const auto bits = __builtin_bit_cast(std::uint64_t, value);
  const std::uint32_t sign = static_cast<std::uint32_t>(bits >> 63) << 31;
  const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
  constexpr std::uint64_t leading = std::uint64_t{1} << mantissa_bits_64;
  const int exponent = static_cast<int>(magnitude >> mantissa_bits_64) - bias_64;
  if (exponent > bias)
    return magnitude > std::uint64_t{0x7FF} << 52 ? nan_bits : sign | infinity_bits;
  if (exponent < lowest_normal - mantissa_bits - 1) return sign;
  const std::uint64_t significand = (magnitude & (leading - 1)) | leading;
  const int below_normal = exponent < lowest_normal ? lowest_normal - exponent : 0;
  const int dropped = mantissa_bits_64 - mantissa_bits + below_normal;
  const std::uint64_t half = std::uint64_t{1} << (dropped - 1);
  const std::uint64_t odd = (significand >> dropped) & 1;
  const auto rounded = static_cast<std::uint32_t>((significand + half - 1 + odd) >> dropped);
  // The leading bit, if it is there, adds one to the exponent field; so does a carry.
  const int field = exponent < lowest_normal ? 0 : exponent - lowest_normal;
  return sign | (rounded + (static_cast<std::uint32_t>(field) << mantissa_bits));
}

}  // namespace float32

// Every NaN as the same quiet one, what else there is unchanged: processors disagree about the
// signs and payloads of the NaNs that they make, and outputs are the same bytes everywhere.
template <class Float>
MXKERN_HOST_DEVICE constexpr Float with_one_nan(Float value) {
  using Bits = typename Lanes<Float>::Bits;
  const Bits bits = bits_of(value);
  const Bits magnitude = bits & float32::magnitude_mask;
  return float_of<Bits>(magnitude > broadcast<Bits>(float32::infinity_bits)
                            ? broadcast<Bits>(float32::nan_bits)
                            : bits);
}

static_assert(float32::exp2(0) == 1.0f && float32::exp2(-127) == 0x1p-127f);
static_assert(float32::nearest_bits(-0x1.8p-149) == 0x80000002u);

}  // namespace mxkern
