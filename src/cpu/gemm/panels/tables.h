// cpu/gemm/panels/tables.h: the values of a format's codes, for look-ups in registers.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/numerics/codec.h"

namespace mxkern::cpu {
namespace {

// The bytes of values as bfloat16, which has them all exactly; NaN aside, which rows are
// multiplied with in the end (see PanelFacts). Codes of fewer than 8 bits repeat.
struct PanelTable {
  alignas(64) std::uint16_t words[64];
  alignas(64) std::uint8_t low[256];
  alignas(64) std::uint8_t high[256];
  alignas(64) float values[256];
};

template <class Format>
constexpr PanelTable make_panel_table() {
  PanelTable table{};
  for (unsigned i = 0; i < 256; ++i) {
    const unsigned code = i & ((1u << Format::bits) - 1);
    const std::uint32_t bits = bits_of(decode<Format>(static_cast<std::uint8_t>(code)));
    const std::uint32_t word = bits >> 16;
    if (i < 64) table.words[i] = static_cast<std::uint16_t>(word);
    table.low[i] = static_cast<std::uint8_t>(word);
    table.high[i] = static_cast<std::uint8_t>(word >> 8);
    table.values[i] = float_of(bits);
  }
  return table;
}

template <class Format>
inline constexpr PanelTable panel_table = make_panel_table<Format>();

// Whether the top bit of a code of 8 is the sign of a value whose magnitude the others are.
template <class Format>
constexpr bool has_sign_on_top() {
  if constexpr (Format::is_integer) {
    return false;
  } else {
    return Format::width == 8;
  }
}

}  // namespace
}  // namespace mxkern::cpu
