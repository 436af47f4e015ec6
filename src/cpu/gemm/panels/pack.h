// cpu/gemm/panels/pack.h: panels of weights to what units multiply for many rows: elements times
// their scales, in the order of pack_right_columns.
#pragma once

#include <cstdint>

#include "cpu/gemm/elements.h"
#include "cpu/gemm/panels/scales.h"
#include "cpu/kernels/lanes_memory.h"
#include "cpu/gemm/panels/codes.h"
#include "cpu/gemm/panels/panels.h"
#if defined(__AVX512F__)
#include "cpu/gemm/panels/words.h"
#elif defined(__AVX2__)
#include "cpu/gemm/panels/floats.h"
#else
#include "cpu/gemm/panels/tables.h"
#endif

namespace mxkern::cpu {
namespace {

// Calls use(pair, FloatPairs) for the 16 pairs of a chunk and as many rows as there are lanes, from
// `first` on: 2^-exponent times the values.
template <class S>
struct PanelColumns {
  using Format = typename S::Format;
#if defined(__AVX512F__)
  static constexpr int exponent = 0;
  const PanelWords<Format::bits, has_sign_on_top<Format>()> words{panel_table<Format>};

  template <class Use>
  [[gnu::always_inline]] void read(const std::uint8_t* codes, int, Use&& use) const {
    words.read(
        codes, [&](int pair, __m512i both) __attribute__((always_inline)) {
          const BitLanes bits = BitLanes(both);
          use(pair,
              FloatPairs{float_of<BitLanes>(bits << 16), float_of<BitLanes>(bits & 0xFFFF0000u)});
        });
  }
#elif defined(__AVX2__)
  static constexpr int exponent = PanelFloats<Format>::exponent;

  template <class Use>
  [[gnu::always_inline]] void read(const std::uint8_t* codes, int first, Use&& use) const {
    PanelFloats<Format>::read(
        codes, first / 8, [&](int pair, RowPairs pairs) __attribute__((always_inline)) {
          const __m256 even = _mm256_shuffle_ps(pairs.first, pairs.last, 0b10001000);
          const __m256 odd = _mm256_shuffle_ps(pairs.first, pairs.last, 0b11011101);
          using Rows = typename PanelFloats<Format>::Rows;
          use(pair, FloatPairs{FloatLanes(Rows::in_order(even)), FloatLanes(Rows::in_order(odd))});
        });
  }
#else
  static constexpr int exponent = 0;

  template <class Use>
  void read(const std::uint8_t* codes, int first, Use&& use) const {
    for (int pair = 0; pair < PanelLayout::chunk / 2; ++pair) {
      FloatPairs values{};
      for (int i = 0; i < lane_count; ++i) {
        values.even[i] = panel_table<Format>.values[code_of(codes, 2 * pair, first + i)];
        values.odd[i] = panel_table<Format>.values[code_of(codes, 2 * pair + 1, first + i)];
      }
      use(pair, values);
    }
  }

 private:
  static std::uint8_t code_of(const std::uint8_t* codes, int i, int row) {
    return panel_code<Format::bits>(codes, i, row);
  }
#endif
};

// Elements of lane_count rows, from `row` on, to columns: pairs of bfloat16, or float32 in the
// order in which the left operand has them.
template <bool Bfloat16, class S>
void pack_panel_columns(const GemmMatrix& matrix, const GemmPanel& panel, std::int64_t row,
                        std::uint8_t* out) {
  const PanelLayout layout(S::Format::bits, S::block, matrix.rows, matrix.k);
  const std::uint8_t* from = matrix.panels + row / PanelLayout::rows * layout.panel_bytes;
  const int first = static_cast<int>(row % PanelLayout::rows);
  const auto& facts = *reinterpret_cast<const PanelFacts*>(from);
  const PanelColumns<S> columns;
  const PanelScales<typename S::ScaleFormat> scales(facts.shift + first, columns.exponent);
  const FloatLanes factor = load_lanes(facts.factor + first);
  const std::int64_t k_bytes = static_cast<std::int64_t>(panel.tile) * 4;
  constexpr std::int64_t group_blocks = PanelLayout::group / S::block;
  // The same of the next tile, which the L2 cache should have by the time it is packed.
  const std::int64_t ahead = row + panel.tile < matrix.rows
                                 ? ceil_div(panel.tile, PanelLayout::rows) * layout.panel_bytes
                                 : 0;
  for (int i = 0; i < panel.chunks; ++i) {
    const std::int64_t k = panel.k + std::int64_t{i} * PanelLayout::chunk;
    const std::uint8_t* group =
        from + PanelLayout::facts_bytes + k / PanelLayout::group * layout.group_bytes;
    const std::uint8_t* codes = group + layout.scale_bytes +
                                k % PanelLayout::group / PanelLayout::chunk * layout.chunk_bytes;
    const std::uint8_t* block = group + k / S::block % group_blocks * PanelLayout::rows + first;
    for (std::int64_t b = 0; b < layout.chunk_bytes; b += 64) {
      __builtin_prefetch(codes + ahead + b, 0, 2);
    }
    __builtin_prefetch(block + ahead, 0, 2);
    FloatLanes scale = scales.load(block) * factor;
    columns.read(
        codes, first, [&](int pair, FloatPairs pairs) __attribute__((always_inline)) {
          if (S::block == 16 && pair == 8) scale = scales.load(block + PanelLayout::rows) * factor;
          const FloatLanes even = pairs.even * scale, odd = pairs.odd * scale;
          if constexpr (Bfloat16) {
            store_vector(out + pair * k_bytes, join(FloatPairs{even, odd}));
          } else {
            std::uint8_t* to = out + (pair / lane_count * step + pair % lane_count) * k_bytes;
            store_vector(to, even);
            store_vector(to + lane_count * k_bytes, odd);
          }
        });
    out += PanelLayout::chunk * k_bytes / (Bfloat16 ? 2 : 1);
  }
}

}  // namespace
}  // namespace mxkern::cpu
