// cpu/gemm/multiply_avx512_bf16.h: a tile of sums with vdpbf16ps, two products an instruction and
// lane.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "cpu/gemm/kernels.h"
#include "cpu/runtime/prefetch.h"

namespace mxkern::cpu {
namespace {

inline constexpr int bf16_tile_rows = facts_of(GemmUnit::avx512_bf16).tile_rows;
inline constexpr int bf16_tile_columns = facts_of(GemmUnit::avx512_bf16).tile_columns;

// Loops over rows are unrolled so that sums stay in registers.
template <int Rows>
[[gnu::always_inline]] inline void multiply_pairs(const std::uint8_t* left,
                                                  const std::uint8_t* right, int chunks, int parts,
                                                  bool accumulate, float* sums) {
  constexpr int row_bytes = gemm_chunk * 2;
  constexpr int pair_bytes = bf16_tile_columns * 4;
  __m512 sum[Rows][2];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    const float* row = sums + i * bf16_tile_columns;
    sum[i][0] = accumulate ? _mm512_loadu_ps(row) : _mm512_setzero_ps();
    sum[i][1] = accumulate ? _mm512_loadu_ps(row + 16) : _mm512_setzero_ps();
  }
  // Tiles of the left operand, and their sums, follow one another in memory: what comes next is
  // asked for early enough for the L3 cache.
  constexpr int tile_bytes = bf16_tile_rows * row_bytes;
  prefetch_rows(sums + bf16_tile_rows * bf16_tile_columns, cache_line, 2 * bf16_tile_rows,
                cache_line);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    prefetch_rows(left + 4 * tile_bytes, cache_line, bf16_tile_rows, cache_line);
    for (int part = 0; part < parts; ++part) {
      for (int pair = 0; pair < gemm_chunk / 2; ++pair) {
        const auto first = (__m512bh)_mm512_loadu_si512(right + pair * pair_bytes);
        const auto second = (__m512bh)_mm512_loadu_si512(right + pair * pair_bytes + 64);
#pragma GCC unroll 16
        for (int i = 0; i < Rows; ++i) {
          int word;
          std::memcpy(&word, left + i * row_bytes + pair * 4, 4);
          const auto element = (__m512bh)_mm512_set1_epi32(word);
          sum[i][0] = _mm512_dpbf16_ps(sum[i][0], element, first);
          sum[i][1] = _mm512_dpbf16_ps(sum[i][1], element, second);
        }
      }
      left += bf16_tile_rows * row_bytes;
    }
    right += gemm_chunk / 2 * pair_bytes;
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    float* row = sums + i * bf16_tile_columns;
    _mm512_storeu_ps(row, sum[i][0]);
    _mm512_storeu_ps(row + 16, sum[i][1]);
  }
}

void multiply_avx512_bf16(const void* left, const void* right, int rows, int chunks, int parts,
                          bool accumulate, float* sums) {
  const std::uint8_t* a = static_cast<const std::uint8_t*>(left);
  const std::uint8_t* b = static_cast<const std::uint8_t*>(right);
  if (rows <= bf16_tile_rows / 4) {
    multiply_pairs<bf16_tile_rows / 4>(a, b, chunks, parts, accumulate, sums);
  } else if (rows <= bf16_tile_rows / 2) {
    multiply_pairs<bf16_tile_rows / 2>(a, b, chunks, parts, accumulate, sums);
  } else {
    multiply_pairs<bf16_tile_rows>(a, b, chunks, parts, accumulate, sums);
  }
}

}  // namespace
}  // namespace mxkern::cpu
