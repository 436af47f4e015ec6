// cpu/kernels/across_rows.h: rows of lines that lie across memory, copied or transformed, and the
// largest magnitudes of the lines' blocks. Only files in cpu/instances/ may include it.
#pragma once

#include <type_traits>

#include "cpu/kernel_table.h"
#include "cpu/kernels/hadamard_across.h"
#include "cpu/kernels/lanes_memory.h"

namespace mxkern::cpu {
namespace {

// What is treated together: as many elements of as many lines. Elements are compared, scaled and
// encoded as they lie, a line a lane; only codes change their places.
inline constexpr int across_lines = 32;
inline constexpr int across_elements = AcrossMemory::rows;

inline constexpr int most_across = AcrossMemory::most;

// Blocks of a line in a chunk; those of all lines lie side by side in ChunkScales.
template <class S>
inline constexpr int across_blocks = across_elements / S::block;

// The largest magnitudes of blocks of lines, in lines' order.
template <class S, class T>
using AcrossAmax = T[across_blocks<S>][most_across];

// Copies the rows of `lines` lines and finds their largest magnitudes in passing.
template <int lines, class S, class T>
[[gnu::always_inline]] inline void copy_lines(const T* x, std::int64_t stride, T* copy,
                                              AcrossAmax<S, T>& amax, std::int64_t line) {
  using Words = std::int32_t __attribute__((vector_size(4 * lane_count)));
  using Halves = std::int16_t __attribute__((vector_size(4 * lane_count)));
  using Magnitudes = std::conditional_t<sizeof(T) == 4, Words, Halves>;
  constexpr int width = sizeof(Magnitudes) / sizeof(T);
  constexpr int registers = lower_of(lines / width, 8);
  const auto sign =
      Magnitudes(sizeof(T) == 4 ? Words{} - 0x7FFFFFFF - 1 : Words(Halves{} - 0x7FFF - 1));
  for (int first = 0; first < lines; first += registers * width) {
    for (int block = 0; block < across_blocks<S>; ++block) {
      const T* source = x + block * S::block * stride + line + first;
      T* target = copy + block * S::block * most_across + line + first;
      Magnitudes largest[registers] = {};
      for (int e = 0; e < S::block; ++e, source += stride, target += most_across) {
        for (int i = 0; i < registers; ++i) {
          const auto bits = load_vector<Magnitudes>(source + i * width);
          store_vector(target + i * width, bits);
          largest[i] = higher_of<Magnitudes>(largest[i], bits & ~sign);
        }
      }
      std::memcpy(amax[block] + line + first, largest, sizeof(largest));
    }
  }
}

// The same for a task's lines; what there is not becomes zero.
template <class S, class T>
[[gnu::always_inline]] inline void copy_rows(const T* x, std::int64_t stride, std::int64_t rows,
                                             std::int64_t lines, T* copy, AcrossAmax<S, T>& amax) {
  if (rows >= across_elements && lines == most_across) [[likely]] {
    return copy_lines<most_across, S>(x, stride, copy, amax, 0);
  }
  for (std::int64_t line = 0; line < lines; line += across_lines) {
    if (rows >= across_elements && lines - line >= across_lines) {
      copy_lines<across_lines, S>(x, stride, copy, amax, line);
      continue;
    }
    T* target = copy + line;
    for (int row = 0; row < across_elements; ++row, target += most_across) {
      std::memset(target, 0, across_lines * sizeof(T));
      if (row >= rows) continue;
      copy_elements(target, x + row * stride + line,
                    lower_of<std::int64_t>(lines - line, across_lines));
    }
    copy_lines<across_lines, S, T>(copy, most_across, copy, amax, line);
  }
}

// Transforms what copy_rows has copied, but for the zeros behind the last row: some would be -0.
template <class S, class T>
[[gnu::noinline]] void transform_rows(T* copy, std::int64_t rows, std::int64_t lines,
                                      const HadamardSigns& signs, AcrossAmax<S, T>& amax) {
  hadamard_across<T>(copy, most_across, lower_of<std::int64_t>(rows, across_elements),
                     round_up(lines, across_lines), signs);
  for (std::int64_t line = 0; line < lines; line += across_lines) {
    copy_lines<across_lines, S, T>(copy, most_across, copy, amax, line);
  }
}

}  // namespace
}  // namespace mxkern::cpu
