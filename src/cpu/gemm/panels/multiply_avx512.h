// cpu/gemm/panels/multiply_avx512.h: a few rows times panels: a lane a column of the output, sums
// of each block scaled as they are added up.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "cpu/gemm/panels/multiply.h"
#include "cpu/gemm/panels/scales.h"
#include "cpu/gemm/panels/words.h"

namespace mxkern::cpu {
namespace {

// Two products a lane, of bfloat16. A row of the left operand has 64 bytes a chunk.
struct PairProducts {
  static constexpr int row_bytes = 64;
#if defined(__AVX512BF16__)
  [[gnu::always_inline]] static __m512 add(__m512 sum, const std::uint8_t* row, int pair,
                                           __m512i words) {
    int elements;
    std::memcpy(&elements, row + pair * 4, 4);
    return _mm512_dpbf16_ps(sum, (__m512bh)words, (__m512bh)_mm512_set1_epi32(elements));
  }
  // What all rows of a pair share.
  [[gnu::always_inline]] static __m512i prepared(__m512i words) { return words; }
#endif
};

// Of float32: even elements of a chunk, then odd ones.
struct FloatProducts {
  static constexpr int row_bytes = 128;
  struct Pair {
    __m512 even, odd;
  };
  [[gnu::always_inline]] static Pair prepared(__m512i words) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(words, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-65536)))};
  }
  [[gnu::always_inline]] static __m512 add(__m512 sum, const std::uint8_t* row, int pair,
                                           const Pair& values) {
    float even, odd;
    std::memcpy(&even, row + pair * 4, 4);
    std::memcpy(&odd, row + 64 + pair * 4, 4);
    sum = _mm512_fmadd_ps(values.even, _mm512_set1_ps(even), sum);
    return _mm512_fmadd_ps(values.odd, _mm512_set1_ps(odd), sum);
  }
};

// One panel's sums of Rows rows, `sums_stride` floats apart.
struct PanelProduct {
  const std::uint8_t* panel;
  std::int64_t first_group;
  const std::uint8_t* left;
  std::int64_t left_stride;  // bytes from chunk to chunk
  int chunks;
  float* sums;
  int sums_stride;
};

// Up to 8 rows add up in registers, more in memory.
template <class Products, class Words, class ScaleFormat, int Block, int Rows>
void multiply_panel(const PanelProduct& task, const PanelTable& table, const PanelLayout& layout) {
  // Of dot products, each of which waits for the one before. The tables of 8 bits leave fewer
  // registers.
  constexpr int chains = Rows <= (Words::bits == 8 ? 2 : 4) ? 2 : 1;
  constexpr bool in_registers = Rows <= 8;
  const auto& facts = *reinterpret_cast<const PanelFacts*>(task.panel);
  const Words words(table);
  const PanelScales<ScaleFormat> scales(facts.shift, 0);
  const std::uint8_t* group =
      task.panel + PanelLayout::facts_bytes + task.first_group * layout.group_bytes;
  const std::uint8_t* left = task.left;
  __m512 total[in_registers ? Rows : 1];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    if constexpr (in_registers) {
      total[i] = _mm512_setzero_ps();
    } else {
      _mm512_storeu_ps(task.sums + i * task.sums_stride, _mm512_setzero_ps());
    }
  }
  __m512 sum[Rows][chains];
  const auto clear = [&]() __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      sum[i][0] = _mm512_setzero_ps();
      if constexpr (chains == 2) sum[i][1] = _mm512_setzero_ps();
    }
  };
  const auto add_block = [&](const std::uint8_t* bytes) __attribute__((always_inline)) {
    const __m512 scale = __m512(scales.load(bytes));
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      __m512 block = sum[i][0];
      if constexpr (chains == 2) block = _mm512_add_ps(block, sum[i][1]);
      if constexpr (in_registers) {
        total[i] = _mm512_fmadd_ps(block, scale, total[i]);
      } else {
        float* to = task.sums + i * task.sums_stride;
        _mm512_storeu_ps(to, _mm512_fmadd_ps(block, scale, _mm512_loadu_ps(to)));
      }
    }
  };
  constexpr std::int64_t code_bytes = PanelLayout::rows * PanelLayout::chunk * Words::bits / 8;
  for (int chunk = 0; chunk < task.chunks; group += layout.group_bytes) {
    __builtin_prefetch(group + panel_bytes_ahead, 0, 3);
    const std::uint8_t* codes = group + layout.scale_bytes;
    const int end = task.chunks - chunk < PanelLayout::group_chunks ? task.chunks - chunk
                                                                    : PanelLayout::group_chunks;
    for (int i = 0; i < end; ++i, codes += code_bytes, left += task.left_stride) {
      prefetch_panel(codes, code_bytes);
      clear();
      words.read(
          codes, [&](int pair, __m512i pairs) __attribute__((always_inline)) {
            const auto values = Products::prepared(pairs);
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r) {
              __m512& one = sum[r][pair % chains];
              one = Products::add(one, left + r * Products::row_bytes, pair, values);
            }
            if constexpr (Block == 16) {
              if (pair == 7) {
                add_block(group + 2 * i * PanelLayout::rows);
                clear();
              }
            }
          });
      if constexpr (Block == 16) {
        add_block(group + (2 * i + 1) * PanelLayout::rows);
      } else {
        add_block(group + i * PanelLayout::chunk / Block * PanelLayout::rows);
      }
    }
    chunk += end;
  }
  const __m512 factor = _mm512_loadu_ps(facts.factor);
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    float* to = task.sums + i * task.sums_stride;
    if constexpr (in_registers) {
      _mm512_storeu_ps(to, _mm512_mul_ps(total[i], factor));
    } else {
      _mm512_storeu_ps(to, _mm512_mul_ps(_mm512_loadu_ps(to), factor));
    }
  }
}

// All rows of a tile. Parts of elements are rows of their own, whose sums are added up.
template <class Products, class S>
void multiply_scheme(const std::uint8_t* left, const RightPanels& right, int rows, int chunks,
                     int parts, bool accumulate, float* sums) {
  using Format = typename S::Format;
  using Words = PanelWords<Format::bits, has_sign_on_top<Format>()>;
  constexpr int most = 16;
  const PanelLayout layout(S::Format::bits, S::block, right.matrix.rows, right.matrix.k);
  const std::int64_t stride = std::int64_t{rows} * parts * Products::row_bytes;
  const bool at_once = is_row_count(rows * parts);
  const int together = at_once ? rows * parts : rows;
  for (std::int64_t column = 0; column < row_floats; column += PanelLayout::rows) {
    if (right.row + column >= right.matrix.rows) break;
    PanelProduct task{
        right.matrix.panels + (right.row + column) / PanelLayout::rows * layout.panel_bytes,
        right.k / PanelLayout::group,
        left,
        stride,
        chunks,
        nullptr,
        PanelLayout::rows};
    alignas(64) float own[2][most * PanelLayout::rows];
    for (int pass = 0; pass < (at_once ? 1 : parts); ++pass) {
      task.sums = own[pass > 0];
      visit_rows<most>(together, [&](auto count) {
        multiply_panel<Products, Words, typename S::ScaleFormat, S::block, count>(
            task, panel_table<Format>, layout);
      });
      task.left += rows * Products::row_bytes;
      for (int i = 0; pass > 0 && i < rows * PanelLayout::rows; ++i) own[0][i] += own[1][i];
    }
    for (int i = 0; i < rows; ++i) {
      __m512 sum = _mm512_load_ps(own[0] + i * PanelLayout::rows);
      for (int part = 1; at_once && part < parts; ++part) {
        sum = _mm512_add_ps(sum, _mm512_load_ps(own[0] + (part * rows + i) * PanelLayout::rows));
      }
      float* to = sums + i * row_floats + column;
      _mm512_storeu_ps(to, accumulate ? _mm512_add_ps(sum, _mm512_loadu_ps(to)) : sum);
    }
  }
}

template <class Products>
void multiply_panels(const void* left, const void* right, int rows, int chunks, int parts,
                     bool accumulate, float* sums) {
  const RightPanels& panels = *static_cast<const RightPanels*>(right);
  visit(panels.matrix.scheme, [&](auto scheme) {
    multiply_scheme<Products, decltype(scheme)>(static_cast<const std::uint8_t*>(left), panels,
                                                rows, chunks, parts, accumulate, sums);
  });
}

}  // namespace
}  // namespace mxkern::cpu
