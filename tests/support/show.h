// tests/support/show.h: values beside their bit patterns, for the messages of failing tests.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "mxkern/core/math.h"

namespace mxkern::test {

inline std::string show_bits(std::uint32_t bits) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08X", bits);
  return text;
}

inline std::string show_code(std::uint32_t code) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%02X", code);
  return text;
}

inline std::string show(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.9g = %a", value, value);
  return text;
}

inline std::string show(float value) {
  return show(static_cast<double>(value)) + " (" + show_bits(bits_of(value)) + ")";
}

}  // namespace mxkern::test
