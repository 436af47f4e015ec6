// cpu/gemm/panels/multiply.h: what products of few rows with panels have in common: where a tile's
// panels lie, and how many rows there is code for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <new>
#include <type_traits>
#include <utility>

#include "cpu/gemm/multiply_float32.h"
#include "cpu/gemm/pack.h"
#include "cpu/gemm/panels/panels.h"

namespace mxkern::cpu {
namespace {

// What stands where other units have a packed panel of the right operand.
struct RightPanels {
  GemmMatrix matrix;
  std::int64_t row;
  std::int64_t k;  // a multiple of PanelLayout::group
};

void keep_panels(const GemmMatrix& matrix, const GemmPanel& panel, const std::int32_t*, void* out) {
  static_assert(sizeof(RightPanels) <= row_floats * gemm_chunk * 2, "there is room for a chunk");
  new (out) RightPanels{matrix, panel.row, panel.k};
}

// How far ahead of their use codes are asked for, in bytes: a core reads memory at 0.8 of its speed
// then, with 4096 at 0.7, and at 0.6 if the processor is left to foresee what it reads.
inline constexpr int panel_bytes_ahead = 8192;

[[gnu::always_inline]] inline void prefetch_panel(const std::uint8_t* bytes, std::int64_t count) {
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < count; i += 64) {
    __builtin_prefetch(bytes + i + panel_bytes_ahead, 0, 3);
  }
}

// The left operand of a panel unit in one piece along K. Multipliers of a row lie on the stack, so
// that it is put together in parts.
template <bool Bfloat16>
void pack_left_whole(const GemmMatrix& matrix, const GemmPanel& panel, const std::int32_t* shifts,
                     void* out) {
  constexpr int most = max_depth / gemm_chunk;
  const std::int64_t chunk_bytes =
      std::int64_t{panel.tile} * panel.parts * gemm_chunk * (Bfloat16 ? 2 : 4);
  auto* to = static_cast<std::uint8_t*>(out);
  for (std::int64_t tile = 0; tile < panel.rows; tile += panel.tile) {
    for (int chunk = 0; chunk < panel.chunks; chunk += most) {
      GemmPanel part = panel;
      part.row = panel.row + tile;
      part.rows = panel.tile;
      part.k = panel.k + std::int64_t{chunk} * gemm_chunk;
      part.chunks = panel.chunks - chunk < most ? panel.chunks - chunk : most;
      pack_left<Bfloat16>(matrix, part, shifts + tile, to + chunk * chunk_bytes);
    }
    to += panel.chunks * chunk_bytes;
  }
}

// Calls visitor with the number of rows as a constant: one of panel_row_counts.
template <int Most, class Visitor>
[[gnu::always_inline]] inline void visit_rows(int rows, Visitor&& visitor) {
  const auto try_count = [&]<std::size_t I>() {
    constexpr int count = panel_row_counts[I];
    if constexpr (count <= Most) {
      if (rows == count) visitor(std::integral_constant<int, count>{});
    }
  };
  [&]<std::size_t... I>(std::index_sequence<I...>) { (try_count.template operator()<I>(), ...); }
  (std::make_index_sequence<std::size(panel_row_counts)>{});
}

constexpr bool is_row_count(int rows) {
  for (const int count : panel_row_counts) {
    if (count == rows) return true;
  }
  return false;
}

}  // namespace
}  // namespace mxkern::cpu
