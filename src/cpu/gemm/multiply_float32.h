// cpu/gemm/multiply_float32.h: a tile of sums in float32 vectors.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "cpu/gemm/kernels.h"
#include "cpu/kernels/lanes_memory.h"

namespace mxkern::cpu {
namespace {

inline constexpr int row_floats = 2 * lane_count;  // of a tile

// Products of codes are exact in float32, so that fusing only spares an instruction.
[[gnu::always_inline]] inline FloatLanes multiply_add(FloatLanes a, FloatLanes b, FloatLanes c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

// Subtracting 0 leaves every value as it is, and compilers know it; adding 0 would not.
[[gnu::always_inline]] inline FloatLanes in_every_lane(float value) { return value - FloatLanes{}; }

// The first Rows rows of a tile of TileRows. Loops over rows are unrolled so that sums stay in
// registers.
template <int TileRows, int Rows>
[[gnu::always_inline]] inline void multiply_rows(const float* left, const float* right, int chunks,
                                                 bool accumulate, float* sums) {
  FloatLanes sum[Rows][2];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    sum[i][0] = accumulate ? load_lanes(sums + i * row_floats) : FloatLanes{};
    sum[i][1] = accumulate ? load_lanes(sums + i * row_floats + lane_count) : FloatLanes{};
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int k = 0; k < gemm_chunk; ++k) {
      const FloatLanes first = load_lanes(right);
      const FloatLanes second = load_lanes(right + lane_count);
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i) {
        const FloatLanes element = in_every_lane(left[i * gemm_chunk + k]);
        sum[i][0] = multiply_add(element, first, sum[i][0]);
        sum[i][1] = multiply_add(element, second, sum[i][1]);
      }
      right += row_floats;
    }
    left += TileRows * gemm_chunk;
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    store_lanes(sums + i * row_floats, sum[i][0]);
    store_lanes(sums + i * row_floats + lane_count, sum[i][1]);
  }
}

template <int TileRows>
void multiply_float32(const void* left, const void* right, int rows, int chunks, int,
                      bool accumulate, float* sums) {
  const float* a = static_cast<const float*>(left);
  const float* b = static_cast<const float*>(right);
  if (rows <= TileRows / 4) {
    multiply_rows<TileRows, (TileRows + 3) / 4>(a, b, chunks, accumulate, sums);
  } else if (rows <= TileRows / 2) {
    multiply_rows<TileRows, TileRows / 2>(a, b, chunks, accumulate, sums);
  } else {
    multiply_rows<TileRows, TileRows>(a, b, chunks, accumulate, sums);
  }
}

void do_nothing() {}

}  // namespace
}  // namespace mxkern::cpu
