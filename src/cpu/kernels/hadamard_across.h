// cpu/kernels/hadamard_across.h: the random Hadamard transform of lines that lie across memory, as
// columns do. Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernel_table.h"
#include "cpu/kernels/lanes_memory.h"
#include "mxkern/numerics/hadamard.h"

namespace mxkern::cpu {
namespace {

static_assert(widest_lanes % lane_count == 0);

// A group is one element below the other, a line a lane: no element changes its place.
template <int size, class T>
[[gnu::always_inline]] inline void transform_across(T* x, std::int64_t stride, std::int64_t rows,
                                                    std::int64_t lines,
                                                    const HadamardSigns& signs) {
  for (std::int64_t row = 0; row < rows; row += size, x += size * stride) {
    for (std::int64_t line = 0; line < lines; line += lane_count) {
      FloatLanes lanes[size];
      for (int i = 0; i < size; ++i) {
        const BitLanes bits = bits_of(load_lanes(x + i * stride + line));
        lanes[i] = float_of<BitLanes>(bits ^ signs.bits[i]);
      }
      hadamard_butterflies(lanes);
      for (int i = 0; i < size; ++i) {
        store_lanes(x + i * stride + line, with_one_nan(lanes[i] * hadamard_norm(size)));
      }
    }
  }
}

template <class T>
void hadamard_across(void* x, std::int64_t stride, std::int64_t rows, std::int64_t lines,
                     const HadamardSigns& signs) {
  T* elements = static_cast<T*>(x);
  if (signs.size == 16) return transform_across<16>(elements, stride, rows, lines, signs);
  transform_across<32>(elements, stride, rows, lines, signs);
}

}  // namespace
}  // namespace mxkern::cpu
