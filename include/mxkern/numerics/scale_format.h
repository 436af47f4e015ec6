// mxkern/numerics/scale_format.h: the bytes that scale a block, E8M0 and UE4M3.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/numerics/codec.h"

namespace mxkern {

// Byte e means 2^(e - 127), 255 means NaN; there is no zero. Source: OCP MX v1.0, section 5.4.1.
struct E8M0 {
  static constexpr const char* name = "e8m0";
  static constexpr bool is_power_of_two = true;
  static constexpr int bias = 127;
  static constexpr std::uint8_t nan_byte = 255;
  static constexpr std::uint8_t max_byte = 254;

  MXKERN_HOST_DEVICE static constexpr float decode(std::uint8_t byte) {
    return byte == nan_byte ? float_of(float32::nan_bits) : float32::exp2(byte - bias);
  }

  // 2^(127 - byte), what elements are multiplied with before they are encoded; not for NaN.
  MXKERN_HOST_DEVICE static constexpr float reciprocal(std::uint8_t byte) {
    return float32::exp2(bias - byte);
  }
};

// An E4M3 byte with sign 0; 0x7F means NaN.
struct UE4M3 {
  static constexpr const char* name = "ue4m3";
  static constexpr bool is_power_of_two = false;
  using Element = E4M3;  // whose codes these are
  static constexpr std::uint8_t nan_byte = 0x7F;
  static constexpr std::uint8_t max_byte = E4M3::max_code;

  // A set sign bit, which no quantizer produces, is ignored.
  MXKERN_HOST_DEVICE static constexpr float decode(std::uint8_t byte) {
    return mxkern::decode<E4M3>(byte & nan_byte);
  }
};

static_assert(E8M0::decode(0) == 0x1p-127f && E8M0::reciprocal(254) == 0x1p-127f);
static_assert(UE4M3::decode(UE4M3::max_byte) == 448.0f);

}  // namespace mxkern
