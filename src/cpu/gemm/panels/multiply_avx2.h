// cpu/gemm/panels/multiply_avx2.h: a few rows times panels with AVX2: two lanes a column of the
// output, one for even and one for odd elements.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "cpu/gemm/panels/multiply.h"
#include "cpu/gemm/panels/floats.h"
#include "cpu/gemm/panels/scales.h"

namespace mxkern::cpu {
namespace {

inline constexpr int most_avx2_rows = facts_of(GemmUnit::avx2_panels).tile_rows;

// Of the left operand, even and odd elements take turns as they are stored.
void pack_left_in_pairs(const GemmMatrix& matrix, const GemmPanel& panel,
                        const std::int32_t* shifts, void* out) {
  pack_left_whole<false>(matrix, panel, shifts, out);
  auto* elements = static_cast<float*>(out);
  const std::int64_t count = panel.rows * panel.chunks * gemm_chunk;
  for (std::int64_t i = 0; i < count; i += step) {
    const __m256 even = _mm256_loadu_ps(elements + i), odd = _mm256_loadu_ps(elements + i + 8);
    const __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
    _mm256_storeu_ps(elements + i, _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_storeu_ps(elements + i + 8, _mm256_permute2f128_ps(low, high, 0x31));
  }
}

// The sums of a panel, of Rows rows; `totals` [Rows][2][16] is what they add up in.
template <class S, int Rows>
void multiply_panel(const std::uint8_t* panel, const PanelLayout& layout, std::int64_t k,
                    const float* left, int chunks, bool accumulate, float* sums) {
  using Format = typename S::Format;
  using Floats = PanelFloats<Format>;
  const auto& facts = *reinterpret_cast<const PanelFacts*>(panel);
  using Scales = PanelScales<typename S::ScaleFormat>;
  const Scales scales[2] = {Scales(facts.shift, Floats::exponent),
                            Scales(facts.shift + 8, Floats::exponent)};
  constexpr std::int64_t code_bytes = PanelLayout::rows * PanelLayout::chunk * Format::bits / 8;
  alignas(32) float totals[Rows][4][8] = {};
  const std::uint8_t* group =
      panel + PanelLayout::facts_bytes + k / PanelLayout::group * layout.group_bytes;
  for (int chunk = 0; chunk < chunks; group += layout.group_bytes) {
    __builtin_prefetch(group + panel_bytes_ahead, 0, 3);
    const std::uint8_t* codes = group + layout.scale_bytes;
    const int end =
        chunks - chunk < PanelLayout::group_chunks ? chunks - chunk : PanelLayout::group_chunks;
    for (int i = 0; i < end; ++i, codes += code_bytes, left += Rows * gemm_chunk) {
      prefetch_panel(codes, code_bytes);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        constexpr int chains = Rows <= 2 ? 2 : 1;
        // Hides that both halves broadcast the same: the compiler would store it for the second.
        const float* rows = left;
        asm volatile("" : "+r"(rows));
        RowPairs sum[Rows][chains];
        const auto clear = [&]() __attribute__((always_inline)) {
#pragma GCC unroll 4
          for (int r = 0; r < Rows; ++r) {
            for (RowPairs& one : sum[r]) one = {_mm256_setzero_ps(), _mm256_setzero_ps()};
          }
        };
        const auto add_block = [&](int block) __attribute__((always_inline)) {
          const RowPairs scale = Floats::Rows::twice(
              __m256(scales[half].load(group + block * PanelLayout::rows + 8 * half)));
#pragma GCC unroll 4
          for (int r = 0; r < Rows; ++r) {
            RowPairs all = sum[r][0];
            if constexpr (chains == 2) {
              all.first = _mm256_add_ps(all.first, sum[r][1].first);
              all.last = _mm256_add_ps(all.last, sum[r][1].last);
            }
            float* first = totals[r][2 * half];
            float* last = totals[r][2 * half + 1];
            _mm256_store_ps(first, _mm256_fmadd_ps(all.first, scale.first, _mm256_load_ps(first)));
            _mm256_store_ps(last, _mm256_fmadd_ps(all.last, scale.last, _mm256_load_ps(last)));
          }
        };
        clear();
        Floats::read(
            codes, half, [&](int pair, RowPairs values) __attribute__((always_inline)) {
#pragma GCC unroll 4
              for (int r = 0; r < Rows; ++r) {
                double elements;
                std::memcpy(&elements, rows + r * gemm_chunk + 2 * pair, sizeof elements);
                const __m256 both = _mm256_castpd_ps(_mm256_set1_pd(elements));
                RowPairs& one = sum[r][pair / 2 % chains];
                one.first = _mm256_fmadd_ps(values.first, both, one.first);
                one.last = _mm256_fmadd_ps(values.last, both, one.last);
              }
              if (S::block == 16 && pair == 7) {
                add_block(2 * i);
                clear();
              }
            });
        add_block(S::block == 16 ? 2 * i + 1 : i * PanelLayout::chunk / S::block);
      }
    }
    chunk += end;
  }
  for (int r = 0; r < Rows; ++r) {
    for (int half = 0; half < 2; ++half) {
      const __m256 total = Floats::Rows::in_order(_mm256_hadd_ps(
          _mm256_load_ps(totals[r][2 * half]), _mm256_load_ps(totals[r][2 * half + 1])));
      const __m256 sum = _mm256_mul_ps(total, _mm256_loadu_ps(facts.factor + 8 * half));
      float* to = sums + r * row_floats + 8 * half;
      _mm256_storeu_ps(to, accumulate ? _mm256_add_ps(sum, _mm256_loadu_ps(to)) : sum);
    }
  }
}

void multiply_panels_avx2(const void* left, const void* right, int rows, int chunks, int,
                          bool accumulate, float* sums) {
  static_assert(row_floats == PanelLayout::rows, "a tile has a panel");
  const RightPanels& panels = *static_cast<const RightPanels*>(right);
  visit(panels.matrix.scheme, [&]<class S>(S) {
    const PanelLayout layout(S::Format::bits, S::block, panels.matrix.rows, panels.matrix.k);
    visit_rows<most_avx2_rows>(rows, [&](auto count) {
      multiply_panel<S, count>(
          panels.matrix.panels + panels.row / PanelLayout::rows * layout.panel_bytes, layout,
          panels.k, static_cast<const float*>(left), chunks, accumulate, sums);
    });
  });
}

}  // namespace
}  // namespace mxkern::cpu
