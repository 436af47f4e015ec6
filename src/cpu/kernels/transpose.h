// cpu/kernels/transpose.h: a matrix of 16- or 32-bit elements to its transpose, in registers.
// Only files in cpu/instances/ may include it.
#pragma once

#include <utility>

#include "cpu/kernels/lanes_memory.h"

namespace mxkern::cpu {
namespace {

// Exchanges, between two rows that are `stride` apart, the elements off the diagonal of 2 x 2
// squares of stride x stride.
template <int stride, std::size_t... i>
[[gnu::always_inline]] inline void exchange(BitLanes& a, BitLanes& b, std::index_sequence<i...>) {
  const BitLanes upper =
      __builtin_shufflevector(a, b, ((i & stride) != 0 ? lane_count + i - stride : i)...);
  b = __builtin_shufflevector(a, b, ((i & stride) != 0 ? lane_count + i : i + stride)...);
  a = upper;
}

// Transposes a square of lane_count x lane_count.
template <int stride = 1>
[[gnu::always_inline]] inline void transpose_square(BitLanes (&rows)[lane_count]) {
  if constexpr (stride < lane_count) {
    for (int i = 0; i < lane_count; ++i) {
      if ((i & stride) == 0) {
        exchange<stride>(rows[i], rows[i + stride], std::make_index_sequence<lane_count>{});
      }
    }
    transpose_square<stride * 2>(rows);
  }
}

// One tile: a square of the elements of a register.
[[gnu::always_inline]] inline void transpose_tile(const std::uint32_t* source,
                                                  std::int64_t source_stride, std::uint32_t* target,
                                                  std::int64_t target_stride) {
  BitLanes rows[lane_count];
  for (int i = 0; i < lane_count; ++i) {
    rows[i] = load_vector<BitLanes>(source + i * source_stride);
  }
  transpose_square(rows);
  for (int i = 0; i < lane_count; ++i) store_vector(target + i * target_stride, rows[i]);
}

// Two rows of 16-bit elements interleave to one row of pairs for the even columns and one for the
// odd ones; pairs are transposed like 32-bit elements.
template <int odd>
[[gnu::always_inline]] inline void transpose_pairs(const std::uint16_t* source,
                                                   std::int64_t source_stride,
                                                   std::uint16_t* target,
                                                   std::int64_t target_stride) {
  BitLanes rows[lane_count];
  for (int i = 0; i < lane_count; ++i) {
    const auto first = load_vector<BitLanes>(source + 2 * i * source_stride);
    const auto second = load_vector<BitLanes>(source + (2 * i + 1) * source_stride);
    rows[i] = odd != 0 ? first >> 16 | (second & 0xFFFF0000u) : (first & 0xFFFFu) | second << 16;
  }
  transpose_square(rows);
  for (int i = 0; i < lane_count; ++i) {
    store_vector(target + (2 * i + odd) * target_stride, rows[i]);
  }
}

[[gnu::always_inline]] inline void transpose_tile(const std::uint16_t* source,
                                                  std::int64_t source_stride, std::uint16_t* target,
                                                  std::int64_t target_stride) {
  transpose_pairs<0>(source, source_stride, target, target_stride);
  transpose_pairs<1>(source, source_stride, target, target_stride);
}

template <class Word>
void transpose(const void* from, std::int64_t source_stride, void* to, std::int64_t target_stride,
               std::int64_t rows, std::int64_t columns) {
  constexpr int tile = static_cast<int>(sizeof(BitLanes) / sizeof(Word));
  const Word* source = static_cast<const Word*>(from);
  Word* target = static_cast<Word*>(to);
  const std::int64_t whole_rows = rows / tile * tile;
  const std::int64_t whole_columns = columns / tile * tile;
  for (std::int64_t r = 0; r < whole_rows; r += tile) {
    for (std::int64_t c = 0; c < whole_columns; c += tile) {
      transpose_tile(source + r * source_stride + c, source_stride, target + c * target_stride + r,
                     target_stride);
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c) {
      std::memcpy(target + c * target_stride + r, source + r * source_stride + c, sizeof(Word));
    }
  }
}

}  // namespace
}  // namespace mxkern::cpu
