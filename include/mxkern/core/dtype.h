// mxkern/core/dtype.h: the plain element types that tensors hold outside the block-scaled schemes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mxkern/core/math.h"

namespace mxkern {

enum class DType : std::uint8_t { float32, float16, bfloat16 };

inline constexpr DType all_dtypes[] = {DType::float32, DType::float16, DType::bfloat16};

MXKERN_HOST_DEVICE constexpr std::size_t size_of(DType dtype) {
  return dtype == DType::float32 ? 4 : 2;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return "float32";
    case DType::float16: return "float16";
    case DType::bfloat16: return "bfloat16";
  }
  return "unknown";
}

// The upper half of a float32: 8 exponent bits, 7 mantissa bits.
struct bfloat16 {
  std::uint16_t bits;
};

// IEEE binary16: 5 exponent bits, 10 mantissa bits.
struct float16 {
  std::uint16_t bits;
};

MXKERN_HOST_DEVICE constexpr float to_float(float value) { return value; }

MXKERN_HOST_DEVICE constexpr float to_float(bfloat16 value) {
  return float_of(static_cast<std::uint32_t>(value.bits) << 16);
}

// Exact. A half subnormal is an integer multiple of 2^-24: subtracting the implicit one that its
// shifted bits pretend to have leaves its value.
MXKERN_HOST_DEVICE constexpr float to_float(float16 value) {
  const std::uint32_t shifted = static_cast<std::uint32_t>(value.bits & 0x7FFF) << 13;
  const std::uint32_t exponent = shifted & (0x1Fu << 23);
  const std::uint32_t rebias = exponent == (0x1Fu << 23) ? (255u - 31u) << 23 : (127u - 15u) << 23;
  const std::uint32_t subnormal = exponent == 0 ? 1u << 23 : 0u;
  const float correction = exponent == 0 ? 0x1p-14f : 0.0f;
  const float magnitude = float_of(shifted + rebias + subnormal) - correction;
  return float_of(bits_of(magnitude) | (static_cast<std::uint32_t>(value.bits & 0x8000) << 16));
}

// Rounds a float32 to nearest, ties to even. A NaN becomes a quiet NaN of the same sign.
template <class T>
MXKERN_HOST_DEVICE constexpr T from_float(float value);

template <>
MXKERN_HOST_DEVICE constexpr float from_float<float>(float value) {
  return value;
}

template <>
MXKERN_HOST_DEVICE constexpr bfloat16 from_float<bfloat16>(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x40u;
  const bool is_nan = (bits & float32::magnitude_mask) > float32::infinity_bits;
  return {static_cast<std::uint16_t>(is_nan ? nan : rounded)};
}

template <>
MXKERN_HOST_DEVICE constexpr float16 from_float<float16>(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t magnitude = bits & float32::magnitude_mask;
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  // From 65520 on, the midpoint above the largest half, everything is Inf. Below, adding a power
  // of two whose last place is the half's last place rounds the significand in place.
  const std::uint32_t clamped = magnitude < 0x477FF000u ? magnitude : 0u;
  const std::uint32_t exponent = clamped & float32::exponent_mask;
  const std::uint32_t base = exponent > (113u << 23) ? exponent : 113u << 23;
  const std::uint32_t magic = base + (13u << 23);
  const std::uint32_t significand = bits_of(float_of(clamped) + float_of(magic)) - magic;
  const std::uint32_t finite = significand + ((base - (113u << 23)) >> 13);
  const std::uint32_t special = magnitude > float32::infinity_bits ? 0x7E00u : 0x7C00u;
  return {static_cast<std::uint16_t>(sign | (magnitude < 0x477FF000u ? finite : special))};
}

// The DType of a C++ element type.
template <class T>
struct dtype_of;
template <>
struct dtype_of<float> : std::integral_constant<DType, DType::float32> {};
template <>
struct dtype_of<float16> : std::integral_constant<DType, DType::float16> {};
template <>
struct dtype_of<bfloat16> : std::integral_constant<DType, DType::bfloat16> {};

// A value that carries an element type into a lambda: [&]<class T>(TypeTag<T>) { ... }
template <class T>
struct TypeTag {
  using type = T;
};

// Calls visitor(TypeTag<T>{}) with the C++ type of dtype.
template <class Visitor>
constexpr decltype(auto) visit(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::float16: return visitor(TypeTag<float16>{});
    case DType::bfloat16: return visitor(TypeTag<bfloat16>{});
    case DType::float32: break;
  }
  return visitor(TypeTag<float>{});
}

static_assert(from_float<bfloat16>(1.00390625f).bits == 0x3F80);  // a tie goes to even
static_assert(from_float<float16>(65504.0f).bits == 0x7BFF);
static_assert(from_float<float16>(0x1p-24f).bits == 0x0001);
static_assert(to_float(float16{0x0001}) == 0x1p-24f);

}  // namespace mxkern
