// cpu/kernels/word_lanes.h: packed codes of lines that lie side by side, a line a lane, to the
// lines. Only files in cpu/instances/ may include it.
#pragma once

#include <utility>

#include "cpu/kernels/lanes_memory.h"

namespace mxkern::cpu {
namespace {

// Instructions that move elements from lane to lane do so within stretches of this many.
inline constexpr int quarter_lanes = 4;
inline constexpr int quarters = lane_count / quarter_lanes;

using PairLanes = std::uint64_t __attribute__((vector_size(4 * lane_count)));
using QuarterLanes = std::uint32_t __attribute__((vector_size(4 * quarter_lanes)));

// Where the line of lane i lies: what stands side by side may be every other line, or have gaps.
struct LineOrder {
  int first;
  int step;
  int quarter_step;

  [[gnu::always_inline]] constexpr int operator()(int quarter, int lane) const {
    return first + quarter * quarter_step + lane * step;
  }
};

// Merges the lower (0) or upper (1) elements of each quarter of two registers.
template <int upper, class Vector, std::size_t... i>
[[gnu::always_inline]] inline Vector interleave_quarters(Vector a, Vector b,
                                                         std::index_sequence<i...>) {
  constexpr std::size_t count = sizeof...(i);
  constexpr std::size_t width = count / quarters;
  return __builtin_shufflevector(
      a, b, (i / width * width + upper * width / 2 + i % width / 2 + i % 2 * count)...);
}

template <int upper, class Vector>
[[gnu::always_inline]] inline Vector interleave_quarters(Vector a, Vector b) {
  constexpr std::size_t count = sizeof(Vector) / sizeof(a[0]);
  return interleave_quarters<upper>(a, b, std::make_index_sequence<count>{});
}

template <int quarter>
[[gnu::always_inline]] inline QuarterLanes quarter_of(PairLanes lanes) {
#if defined(__AVX512F__)
  return QuarterLanes(_mm512_maskz_extracti32x4_epi32(0xF, __m512i(lanes), quarter));
#elif defined(__AVX2__)
  return QuarterLanes(_mm256_extracti128_si256(__m256i(lanes), quarter));
#else
  return QuarterLanes(lanes);
#endif
}

// Stores two registers of four words (or of the last two, in halves of a register) a line.
template <int words, int lane, std::size_t... quarter>
[[gnu::always_inline]] inline void store_line(PairLanes lanes, LineOrder order,
                                              std::uint8_t* target, std::int64_t stride,
                                              std::index_sequence<quarter...>) {
  const auto store = [&](QuarterLanes four, int q) __attribute__((always_inline)) {
    if constexpr (words == 4) {
      store_vector(target + order(q, lane) * stride, four);
    } else {
      using Pairs = std::uint64_t __attribute__((vector_size(16)));
      const auto pairs = Pairs(four);
      store_vector(target + order(q, lane) * stride, pairs[0]);
      store_vector(target + order(q, lane + 1) * stride, pairs[1]);
    }
  };
  (store(quarter_of<static_cast<int>(quarter)>(lanes), static_cast<int>(quarter)), ...);
}

// words[w] has word w of lane_count lines; a line gets its `count` words one after the other.
template <int count>
[[gnu::always_inline]] inline void store_lines(const BitLanes (&words)[count], LineOrder order,
                                               std::uint8_t* target, std::int64_t stride) {
  constexpr auto all = std::make_index_sequence<quarters>{};
  static_assert(count % 2 == 0);
  for (int w = 0; w < count; w += 4, target += 16) {
    const auto low = PairLanes(interleave_quarters<0>(words[w], words[w + 1]));
    const auto high = PairLanes(interleave_quarters<1>(words[w], words[w + 1]));
    if (w + 2 == count) {
      store_line<2, 0>(low, order, target, stride, all);
      store_line<2, 2>(high, order, target, stride, all);
      return;
    }
    const auto more_low = PairLanes(interleave_quarters<0>(words[w + 2], words[w + 3]));
    const auto more_high = PairLanes(interleave_quarters<1>(words[w + 2], words[w + 3]));
    store_line<4, 0>(interleave_quarters<0>(low, more_low), order, target, stride, all);
    store_line<4, 1>(interleave_quarters<1>(low, more_low), order, target, stride, all);
    store_line<4, 2>(interleave_quarters<0>(high, more_high), order, target, stride, all);
    store_line<4, 3>(interleave_quarters<1>(high, more_high), order, target, stride, all);
  }
}

}  // namespace
}  // namespace mxkern::cpu
