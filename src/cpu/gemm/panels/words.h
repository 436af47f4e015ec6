// cpu/gemm/panels/words.h: codes of a panel to pairs of bfloat16, by tables in AVX-512 registers.
// Only files in cpu/instances/ may include it.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/gemm/panels/tables.h"
#include "mxkern/tensor/panel_layout.h"

namespace mxkern::cpu {
namespace {

// Calls use(pair, words) for the 16 pairs of neighbours along K of a chunk: a lane of 32 bits has
// the pair of a row, the even element in its lower half. Tables hold what 4 bits decode to twice,
// as the instruction takes 5 bits.
template <int Bits, bool HasSignOnTop>
struct PanelWords;

template <bool HasSignOnTop>
struct PanelWords<4, HasSignOnTop> {
  static constexpr int bits = 4;
  __m512i table;
  [[gnu::always_inline]] explicit PanelWords(const PanelTable& values)
      : table(_mm512_load_si512(values.words)) {}

  template <class Use>
  [[gnu::always_inline]] void read(const std::uint8_t* codes, Use&& use) const {
#pragma GCC unroll 4
    for (int w = 0; w < 4; ++w) {
      const __m512i word = _mm512_loadu_si512(codes + 64 * w);
      use(4 * w, _mm512_permutexvar_epi16(word, table));
      use(4 * w + 1, _mm512_permutexvar_epi16(_mm512_srli_epi16(word, 4), table));
      use(4 * w + 2, _mm512_permutexvar_epi16(_mm512_srli_epi16(word, 8), table));
      use(4 * w + 3, _mm512_permutexvar_epi16(_mm512_srli_epi16(word, 12), table));
    }
  }
};

template <bool HasSignOnTop>
struct PanelWords<6, HasSignOnTop> {
  static constexpr int bits = 6;
  __m512i lower, upper;
  [[gnu::always_inline]] explicit PanelWords(const PanelTable& values)
      : lower(_mm512_load_si512(values.words)), upper(_mm512_load_si512(values.words + 32)) {}

  template <class Use>
  [[gnu::always_inline]] void read(const std::uint8_t* codes, Use&& use) const {
    const auto look_up = [this](__m512i index) __attribute__((always_inline)) {
      return _mm512_permutex2var_epi16(lower, index, upper);
    };
    const __m512i upper_bits = _mm512_set1_epi16(0x30);
    constexpr int a_or_b_and_c = 0xF8;
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m512i first = _mm512_loadu_si512(codes + 192 * h);
      const __m512i second = _mm512_loadu_si512(codes + 192 * h + 64);
      const __m512i third = _mm512_loadu_si512(codes + 192 * h + 128);
      use(8 * h, look_up(first));
      use(8 * h + 1, look_up(_mm512_srli_epi16(first, 6)));
      use(8 * h + 2, look_up(second));
      use(8 * h + 3, look_up(_mm512_srli_epi16(second, 6)));
      use(8 * h + 4, look_up(third));
      use(8 * h + 5, look_up(_mm512_srli_epi16(third, 6)));
      use(8 * h + 6, look_up(_mm512_ternarylogic_epi32(_mm512_srli_epi16(first, 12),
                                                       _mm512_srli_epi16(third, 8), upper_bits,
                                                       a_or_b_and_c)));
      use(8 * h + 7, look_up(_mm512_ternarylogic_epi32(_mm512_srli_epi16(second, 12),
                                                       _mm512_srli_epi16(third, 10), upper_bits,
                                                       a_or_b_and_c)));
    }
  }
};

// A table a byte of the bfloat16: of magnitudes, or of all codes in two.
template <bool HasSignOnTop>
struct PanelWords<8, HasSignOnTop> {
  static constexpr int bits = 8;
  static constexpr int parts = HasSignOnTop ? 2 : 4;
  __m512i low[parts], high[parts];
  [[gnu::always_inline]] explicit PanelWords(const PanelTable& values) {
#pragma GCC unroll 4
    for (int i = 0; i < parts; ++i) {
      low[i] = _mm512_load_si512(values.low + 64 * i);
      high[i] = _mm512_load_si512(values.high + 64 * i);
    }
  }

  [[gnu::always_inline]] static __m512i look_up(const __m512i (&table)[parts], __m512i codes) {
    const __m512i first = _mm512_permutex2var_epi8(table[0], codes, table[1]);
    if constexpr (HasSignOnTop) {
      return first;
    } else {
      const __m512i second = _mm512_permutex2var_epi8(table[2], codes, table[3]);
      return _mm512_mask_blend_epi8(_mm512_movepi8_mask(codes), first, second);
    }
  }

  template <class Use>
  [[gnu::always_inline]] void read(const std::uint8_t* codes, Use&& use) const {
#pragma GCC unroll 8
    for (int w = 0; w < 8; ++w) {
      const __m512i bytes = _mm512_loadu_si512(codes + 64 * w);
      const __m512i lower = look_up(low, bytes);
      __m512i upper = look_up(high, bytes);
      if constexpr (HasSignOnTop) {
        constexpr int a_or_b_and_c = 0xF8;
        upper = _mm512_ternarylogic_epi32(upper, bytes, _mm512_set1_epi8(-128), a_or_b_and_c);
      }
      use(2 * w, _mm512_unpacklo_epi8(lower, upper));
      use(2 * w + 1, _mm512_unpackhi_epi8(lower, upper));
    }
  }
};

}  // namespace
}  // namespace mxkern::cpu
