// mxkern/tensor/panel_layout.h: weights in the order in which vectors of a CPU read them.
//
// A panel is 16 rows of weights, columns of the output. It begins with the facts of its rows.
// Groups of 128 elements along K follow: their scales, 16 bytes for each block along K, one a row,
// then their codes in chunks of 32 elements. A chunk consists of words of 32 bits, 16 of each kind,
// one a row, so that a vector register holds all rows:
//   4 bits  4 kinds: word w has elements 8 w to 8 w + 7; the even ones from bit 0 up, the odd ones
//           from bit 16 up
//   6 bits  6 kinds: words 3 h to 3 h + 2 have elements 16 h to 16 h + 15; the even ones in the
//           lower halves, the odd ones in the upper halves: in word i the fields of elements 4 i
//           and 4 i + 2 from bit 0 up, in the four bits above them the lower ones of the seventh
//           and of the eighth field, in the third word their upper ones
//   8 bits  8 kinds: element pairs 2 w and 2 w + 1 take turns in runs of 8 bytes, four rows each
// Rows and elements that the weights do not have are zero codes under zero scale bytes.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/numerics/visit.h"

namespace mxkern {

// Of the 16 rows of a panel.
struct PanelFacts {
  float factor[16];         // 1, or NaN where an element or a scale of the row is
  std::int32_t shift[16];   // a power of two that a row is multiplied with, as products want it
  std::int32_t spread[16];  // how many octaves lie between the scales of its blocks that count
};

struct PanelLayout {
  static constexpr int rows = 16;
  static constexpr int chunk = 32;
  static constexpr int group_chunks = 4;
  static constexpr int group = group_chunks * chunk;
  static constexpr std::int64_t facts_bytes = sizeof(PanelFacts);

  std::int64_t panels;
  std::int64_t groups;       // of a panel
  std::int64_t scale_bytes;  // of a group, with what fills its last cache line
  std::int64_t chunk_bytes;  // of codes
  std::int64_t group_bytes;
  std::int64_t panel_bytes;
  std::int64_t matrix_bytes;

  constexpr PanelLayout(Scheme scheme, std::int64_t n, std::int64_t k)
      : PanelLayout(facts_of(scheme).bits, facts_of(scheme).block, n, k) {}

  constexpr PanelLayout(int bits, int block, std::int64_t n, std::int64_t k)
      : panels(ceil_div(n, rows)),
        groups(ceil_div(k, group)),
        scale_bytes(round_up(group / block * rows, 64)),
        chunk_bytes(rows * chunk * bits / 8),
        group_bytes(scale_bytes + group_chunks * chunk_bytes),
        panel_bytes(facts_bytes + groups * group_bytes),
        matrix_bytes(panels * panel_bytes) {}
};
static_assert(PanelLayout::facts_bytes % 64 == 0, "codes start on cache lines");

}  // namespace mxkern
