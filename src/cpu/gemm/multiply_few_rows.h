// cpu/gemm/multiply_few_rows.h: a tile of sums as dot products of rows, neither of which is turned.
#pragma once

#include "cpu/gemm/multiply_float32.h"
#include "cpu/kernels/transpose.h"

namespace mxkern::cpu {
namespace {

// The sum of the lanes of register i in lane i.
[[gnu::always_inline]] inline FloatLanes sums_of_lanes(const FloatLanes (&sums)[lane_count]) {
  BitLanes rows[lane_count];
  for (int i = 0; i < lane_count; ++i) rows[i] = bits_of(sums[i]);
  transpose_square(rows);
  FloatLanes total = float_of<BitLanes>(rows[0]);
  for (int i = 1; i < lane_count; ++i) total += float_of<BitLanes>(rows[i]);
  return total;
}

// The first Rows rows of a tile, with as many columns at a time as leave every sum a register.
// Both operands are packed as left ones are.
template <int TileRows, int Rows>
[[gnu::always_inline]] inline void multiply_few_rows(const float* left, const float* right,
                                                     int chunks, bool accumulate, float* sums) {
  constexpr int columns = lane_count / Rows;
  for (int column = 0; column < row_floats; column += columns) {
    FloatLanes sum[lane_count] = {};
    const float* a = left;
    const float* b = right + column * gemm_chunk;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int k = 0; k < gemm_chunk; k += lane_count) {
        FloatLanes elements[Rows];
        for (int i = 0; i < Rows; ++i) elements[i] = load_lanes(a + i * gemm_chunk + k);
#pragma GCC unroll 16
        for (int j = 0; j < columns; ++j) {
          const FloatLanes other = load_lanes(b + j * gemm_chunk + k);
#pragma GCC unroll 4
          for (int i = 0; i < Rows; ++i) {
            sum[i * columns + j] = multiply_add(elements[i], other, sum[i * columns + j]);
          }
        }
      }
      a += TileRows * gemm_chunk;
      b += row_floats * gemm_chunk;
    }
    float totals[lane_count];
    store_lanes(totals, sums_of_lanes(sum));
    for (int i = 0; i < Rows; ++i) {
      float* to = sums + i * row_floats + column;
      for (int j = 0; j < columns; ++j) {
        const float total = totals[i * columns + j];
        to[j] = accumulate ? to[j] + total : total;
      }
    }
  }
}

template <int TileRows>
void multiply_few(const void* left, const void* right, int rows, int chunks, int, bool accumulate,
                  float* sums) {
  static_assert(TileRows == 4);
  const float* a = static_cast<const float*>(left);
  const float* b = static_cast<const float*>(right);
  if (rows == 1) {
    multiply_few_rows<TileRows, 1>(a, b, chunks, accumulate, sums);
  } else if (rows == 2) {
    multiply_few_rows<TileRows, 2>(a, b, chunks, accumulate, sums);
  } else {
    multiply_few_rows<TileRows, 4>(a, b, chunks, accumulate, sums);
  }
}

}  // namespace
}  // namespace mxkern::cpu
