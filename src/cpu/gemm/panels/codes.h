// cpu/gemm/panels/codes.h: where the codes of a chunk of a panel lie, one by one.
#pragma once

#include <cstdint>
#include <cstring>

#include "mxkern/tensor/panel_layout.h"

namespace mxkern::cpu {

// Where a part of an element's code lies among a row's words of a chunk: `bits` bits from bit
// `from` of the code on, at bit `to` of the word.
struct PanelPlace {
  int word, to, from, bits;
};

// Calls visitor with each part of element i.
template <int Bits, class Visitor>
constexpr void visit_panel_places(int i, Visitor&& visitor) {
  const int half = i % 2 * 16;
  if constexpr (Bits == 4) {
    visitor(PanelPlace{i / 8, i % 8 / 2 * 4 + half, 0, 4});
  } else if constexpr (Bits == 6) {
    const int first = i / 16 * 3, field = i % 16 / 2;
    if (field < 6) return visitor(PanelPlace{first + field / 2, field % 2 * 6 + half, 0, 6});
    visitor(PanelPlace{first + field - 6, 12 + half, 0, 4});
    visitor(PanelPlace{first + 2, 12 + (field - 6) * 2 + half, 4, 2});
  }
}

// The byte of element i of a row in a chunk of 8-bit codes.
constexpr int panel_byte(int i, int row) {
  return i / 4 * 64 + row / 4 * 16 + i % 4 / 2 * 8 + row % 4 * 2 + i % 2;
}

// The code of element i of a row in a chunk.
template <int Bits>
std::uint8_t panel_code(const std::uint8_t* codes, int i, int row) {
  if constexpr (Bits == 8) {
    return codes[panel_byte(i, row)];
  } else {
    unsigned code = 0;
    visit_panel_places<Bits>(i, [&](PanelPlace p) {
      std::uint32_t word;
      std::memcpy(&word, codes + (p.word * PanelLayout::rows + row) * 4, sizeof word);
      code |= (word >> p.to & ((1u << p.bits) - 1)) << p.from;
    });
    return static_cast<std::uint8_t>(code);
  }
}

}  // namespace mxkern::cpu
