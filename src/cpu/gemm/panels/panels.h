// cpu/gemm/panels/panels.h: weights into panels, which products of few rows read as fast as memory
// gives them.
#pragma once

#include <cstdint>

#include "cpu/gemm/kernels.h"
#include "mxkern/tensor/panel_layout.h"

namespace mxkern::cpu {

// Whether this machine has units that read panels.
bool reads_panels();

// Writes the panels of one quantized matrix.
void fill_panels(const GemmMatrix& matrix, std::uint8_t* panels);

// The facts of the panel that has a row.
inline const PanelFacts& panel_facts(const std::uint8_t* panels, const PanelLayout& layout,
                                     std::int64_t row) {
  return *reinterpret_cast<const PanelFacts*>(panels +
                                              row / PanelLayout::rows * layout.panel_bytes);
}

// Bytes of a row's codes and scales as read_panel_row writes them, at most.
constexpr std::int64_t panel_row_bytes(std::int64_t k) {
  return 2 * round_up(k, std::int64_t{PanelLayout::group});
}

// One row of a matrix that lies in panels, as quantize wrote it: codes and scales in `memory`,
// panel_row_bytes of it. Returns the matrix of this row alone.
GemmMatrix read_panel_row(const GemmMatrix& matrix, std::int64_t row, std::uint8_t* memory);

}  // namespace mxkern::cpu
