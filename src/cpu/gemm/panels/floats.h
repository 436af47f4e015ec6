// cpu/gemm/panels/floats.h: codes of a panel to float32 with AVX2: 4 bits by tables, MXINT8 as
// integers, others by halves, which the processor converts. Only files in cpu/instances/ may
// include it.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/gemm/panels/tables.h"
#include "cpu/lanes.h"
#include "mxkern/numerics/format.h"
#include "mxkern/tensor/panel_layout.h"

namespace mxkern::cpu {
namespace {

// Pairs of neighbours along K of eight rows: even and odd elements take turns, and rows come in an
// order of RowOrder's.
struct RowPairs {
  __m256 first, last;
};

// Rows 0, 1, 4 and 5 in `first`, as instructions that do not cross halves of registers put them.
struct CrossedRows {
  // A value a row twice, for its even and its odd elements.
  [[gnu::always_inline]] static RowPairs twice(__m256 values) {
    return {_mm256_unpacklo_ps(values, values), _mm256_unpackhi_ps(values, values)};
  }
  // What _mm256_hadd_ps and the like make of both, in the order of rows.
  [[gnu::always_inline]] static __m256 in_order(__m256 values) { return values; }
};

// Rows 0 to 3 in `first`.
struct RowsInTurn {
  [[gnu::always_inline]] static RowPairs twice(__m256 values) {
    return {_mm256_permutevar8x32_ps(values, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
            _mm256_permutevar8x32_ps(values, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
  }
  [[gnu::always_inline]] static __m256 in_order(__m256 values) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(values), 0b11011000));
  }
};

// Calls use(pair, words) for the 16 pairs of a chunk and rows 8 * half and on: codes of 6 or 8 bits
// in the upper bits of words of 16, from bit `lowest` up; below is anything.
template <int Bits>
struct PanelCodes;

template <>
struct PanelCodes<6> {
  static constexpr int lowest = 10;
  template <class Use>
  [[gnu::always_inline]] static void read(const std::uint8_t* codes, int half, Use&& use) {
    const __m256i upper_bits = _mm256_set1_epi16(-0x4000);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const std::uint8_t* from = codes + 192 * h + 32 * half;
      const __m256i first = load_vector<__m256i>(from), second = load_vector<__m256i>(from + 64);
      const __m256i third = load_vector<__m256i>(from + 128);
      use(8 * h, _mm256_slli_epi16(first, 10));
      use(8 * h + 1, _mm256_slli_epi16(first, 4));
      use(8 * h + 2, _mm256_slli_epi16(second, 10));
      use(8 * h + 3, _mm256_slli_epi16(second, 4));
      use(8 * h + 4, _mm256_slli_epi16(third, 10));
      use(8 * h + 5, _mm256_slli_epi16(third, 4));
      use(8 * h + 6, _mm256_or_si256(_mm256_srli_epi16(first, 2),
                                     _mm256_and_si256(_mm256_slli_epi16(third, 2), upper_bits)));
      use(8 * h + 7,
          _mm256_or_si256(_mm256_srli_epi16(second, 2), _mm256_and_si256(third, upper_bits)));
    }
  }
};

template <>
struct PanelCodes<8> {
  static constexpr int lowest = 8;
  template <class Use>
  [[gnu::always_inline]] static void read(const std::uint8_t* codes, int half, Use&& use) {
    const __m256i zeros = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int w = 0; w < 8; ++w) {
      const __m256i bytes = load_vector<__m256i>(codes + 64 * w + 32 * half);
      use(2 * w, _mm256_unpacklo_epi8(zeros, bytes));
      use(2 * w + 1, _mm256_unpackhi_epi8(zeros, bytes));
    }
  }
};

// Calls convert with the words of `first` and of `last`.
template <class Convert>
[[gnu::always_inline]] inline RowPairs convert_words(__m256i words, Convert&& convert) {
  return {convert(_mm256_castsi256_si128(words)), convert(_mm256_extracti128_si256(words, 1))};
}

// Calls use(pair, RowPairs) for a chunk. What it gives is 2^-exponent times the values; NaN may be
// anything (see PanelFacts).
template <class Format>
struct PanelFloats {
  static constexpr bool looks_up = Format::bits == 4;
  static constexpr bool shifts_to_halves = !looks_up && is_ocp_float<Format>;
  static constexpr bool converts_integers = Format::is_integer && Format::bits == 8;
  using Rows = std::conditional_t<looks_up || converts_integers, CrossedRows, RowsInTurn>;

  static constexpr int find_exponent() {
    if constexpr (shifts_to_halves) return 15 - Format::bias;
    if constexpr (converts_integers) return -24 - Format::mantissa_bits;
    return 0;
  }
  static constexpr int exponent = find_exponent();

  template <class Use>
  [[gnu::always_inline]] static void read(const std::uint8_t* codes, int half, Use&& use) {
    if constexpr (looks_up) {
      read_by_table(codes, half, use);
    } else {
      PanelCodes<Format::bits>::read(
          codes, half, [&](int pair, __m256i words) __attribute__((always_inline)) {
            use(pair, convert(words));
          });
    }
  }

 private:
  using Codes = PanelCodes<Format::bits>;

  // Tables of both bytes of a bfloat16. Side by side, what was looked up of the lower bits of a
  // word has lanes of an element of the first pair in their lower half and one of the third in the
  // upper.
  template <class Use>
  [[gnu::always_inline]] static void read_by_table(const std::uint8_t* codes, int half, Use& use) {
    const auto load_table = [](const std::uint8_t* bytes) {
      return _mm256_broadcastsi128_si256(load_vector<__m128i>(bytes));
    };
    const __m256i low = load_table(panel_table<Format>.low);
    const __m256i high = load_table(panel_table<Format>.high);
    const __m256i four_bits = _mm256_set1_epi8(15), upper_half = _mm256_set1_epi32(-65536);
    const auto look_up = [&](int pair, __m256i index) __attribute__((always_inline)) {
      const __m256i lower = _mm256_shuffle_epi8(low, index);
      const __m256i upper = _mm256_shuffle_epi8(high, index);
      const __m256i first = _mm256_unpacklo_epi8(lower, upper);
      const __m256i last = _mm256_unpackhi_epi8(lower, upper);
      use(pair, RowPairs{_mm256_castsi256_ps(_mm256_slli_epi32(first, 16)),
                         _mm256_castsi256_ps(_mm256_slli_epi32(last, 16))});
      use(pair + 2, RowPairs{_mm256_castsi256_ps(_mm256_and_si256(first, upper_half)),
                             _mm256_castsi256_ps(_mm256_and_si256(last, upper_half))});
    };
#pragma GCC unroll 4
    for (int w = 0; w < 4; ++w) {
      const __m256i word = load_vector<__m256i>(codes + 64 * w + 32 * half);
      look_up(4 * w, _mm256_and_si256(word, four_bits));
      look_up(4 * w + 1, _mm256_and_si256(_mm256_srli_epi16(word, 4), four_bits));
    }
  }

  [[gnu::always_inline]] static RowPairs convert(__m256i words) {
    if constexpr (shifts_to_halves) {
      // The exponent of a half has more bits: a shift to the right, of which the sign stays.
      constexpr int right = 5 - Format::exponent_bits;
      constexpr int mask = 0x8000 | Format::magnitude_mask << (16 - Format::bits - right);
      __m256i halves = words;
      if constexpr (right > 0 || Format::bits < 8) {
        halves = _mm256_and_si256(_mm256_srai_epi16(halves, right),
                                  _mm256_set1_epi16(static_cast<short>(mask)));
      }
      return convert_words(halves, [](__m128i part) { return _mm256_cvtph_ps(part); });
    } else if constexpr (converts_integers) {
      const __m256i zeros = _mm256_setzero_si256();
      return {_mm256_cvtepi32_ps(_mm256_unpacklo_epi16(zeros, words)),
              _mm256_cvtepi32_ps(_mm256_unpackhi_epi16(zeros, words))};
    } else {
      const float* values = panel_table<Format>.values;
      return convert_words(_mm256_srli_epi16(words, Codes::lowest), [values](__m128i indices) {
        return _mm256_i32gather_ps(values, _mm256_cvtepu16_epi32(indices), 4);
      });
    }
  }
};

}  // namespace
}  // namespace mxkern::cpu
