// cpu/gemm/multiply_few_rows.h: a few rows times rows that are decoded on the way: dot products.
#pragma once

#include <new>

#include "cpu/gemm/multiply_float32.h"
#include "cpu/gemm/pack.h"
#include "cpu/kernels/transpose.h"

namespace mxkern::cpu {
namespace {

// What stands where other units have a packed panel: panels take as long to go from cache to cache
// as everything else.
struct RightRows {
  GemmMatrix matrix;
  GemmPanel panel;
  const std::int32_t* shifts;
};

void keep_right_rows(const GemmMatrix& matrix, const GemmPanel& panel, const std::int32_t* shifts,
                     void* out) {
  static_assert(sizeof(RightRows) <= row_floats * gemm_chunk * sizeof(float),
                "there is room for a chunk of a tile's columns at least");
  new (out) RightRows{matrix, panel, shifts};
}

// The sum of the lanes of register i in lane i.
[[gnu::always_inline]] inline FloatLanes sums_of_lanes(const FloatLanes (&sums)[lane_count]) {
  BitLanes rows[lane_count];
  for (int i = 0; i < lane_count; ++i) rows[i] = bits_of(sums[i]);
  transpose_square(rows);
  FloatLanes total = float_of<BitLanes>(rows[0]);
  for (int i = 1; i < lane_count; ++i) total += float_of<BitLanes>(rows[i]);
  return total;
}

// The products of Rows rows with row `row` of the right operand: sums to be added up over the
// lanes.
template <class S, int Rows>
[[gnu::always_inline]] inline void multiply_row(const float* left, const RightRows& right,
                                                std::int64_t row, std::int32_t shift,
                                                FloatLanes (&sums)[Rows][lane_count], int column) {
  prefetch_row<S>(right.matrix, right.panel, row + rows_ahead);
  const RowReader<S> reader(right.matrix, row, right.panel.k, right.panel.chunks, shift);
  FloatLanes even[Rows] = {}, odd[Rows] = {};
  for (int chunk = 0; chunk < right.panel.chunks; ++chunk) {
    reader.read(
        chunk, [&](int first, FloatPairs pairs) __attribute__((always_inline)) {
          const float* elements = left + first;
#pragma GCC unroll 8
          for (int i = 0; i < Rows; ++i, elements += gemm_chunk) {
            even[i] = multiply_add(load_lanes(elements), pairs.even, even[i]);
            odd[i] = multiply_add(load_lanes(elements + lane_count), pairs.odd, odd[i]);
          }
        });
    left += Rows * gemm_chunk;
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) sums[i][column] = even[i] + odd[i];
}

template <class S, int Rows>
void multiply_few_rows(const float* left, const RightRows& right, bool accumulate, float* sums) {
  for (int first = 0; first < row_floats; first += lane_count) {
    FloatLanes lanes[Rows][lane_count] = {};
    for (int column = 0; column < lane_count; ++column) {
      const std::int64_t row = right.panel.row + first + column;
      if (row >= right.matrix.rows) break;
      multiply_row<S>(left, right, row, right.shifts[first + column], lanes, column);
    }
    for (int i = 0; i < Rows; ++i) {
      float* to = sums + i * row_floats + first;
      const FloatLanes total = sums_of_lanes(lanes[i]);
      store_lanes(to, accumulate ? load_lanes(to) + total : total);
    }
  }
}

template <int TileRows>
void multiply_decode(const void* left, const void* right, int rows, int, int, bool accumulate,
                     float* sums) {
  const float* a = static_cast<const float*>(left);
  const RightRows& b = *static_cast<const RightRows*>(right);
  visit(b.matrix.scheme, [&]<class S>(S) {
    if (rows == 1) {
      multiply_few_rows<S, 1>(a, b, accumulate, sums);
    } else if (rows == 2) {
      multiply_few_rows<S, 2>(a, b, accumulate, sums);
    } else if (rows == 4) {
      multiply_few_rows<S, 4>(a, b, accumulate, sums);
    } else {
      multiply_few_rows<S, TileRows>(a, b, accumulate, sums);
    }
  });
}

}  // namespace
}  // namespace mxkern::cpu
