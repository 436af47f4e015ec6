// mxkern/kernels/few_sm90_rows.cuh: four adjacent rows of weights, whose outputs a thread finishes
// for one token after the other.
#pragma once

#include <cstdint>

#include "mxkern/kernels/few_finish.cuh"
#include "mxkern/kernels/few_parameters.h"
#include "mxkern/kernels/few_sm90_decode.cuh"

namespace mxkern::kernels::few {

// Of the threads that finish: others of the thread block have nothing to do here.
template <int Threads>
__device__ __forceinline__ void sync_threads() {
  asm volatile("bar.sync 1, %0;" ::"n"(Threads) : "memory");
}

__device__ __forceinline__ float4 read_sums(std::uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address));
  return v;
}

// What belongs to the rows is read once, and kept here.
template <class K>
struct FourRows {
  const FewParameters& p;
  const std::uint8_t* weights;
  std::int64_t batch, first_row, first_token;
  std::uint32_t kinds;  // a byte each
  float factor, bias[4];
  float row_factor[4];  // where rows have tops

  // Of the rows from `row` on, from their tops. Rows whose scales are too far apart for halves are
  // special.
  __device__ __forceinline__ void take_tops(std::int64_t row) {
    if constexpr (has_tops<K>) {
      using Scales = HalfScales<typename K::Format>;
      if (row >= p.layout.rows) return;
      const std::uint32_t tops =
          *reinterpret_cast<const std::uint32_t*>(weights + p.layout.tops_offset() + row);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int top = static_cast<int>(tops >> (8 * j) & 0xFFu);
        if (top == Scales::wide && (kinds >> (8 * j) & 0xFFu) == 0) {
          kinds |= static_cast<std::uint32_t>(RowKind::special) << (8 * j);
        }
        // A power of two, which may be subnormal.
        const int exponent = top + Scales::sum_exponent;
        row_factor[j] = float_of(exponent > -127 ? static_cast<std::uint32_t>(exponent + 127) << 23
                                                 : 1u << (exponent + 149));
      }
    }
  }
  // What the sums of the j-th row lack.
  __device__ __forceinline__ float sum_factor_of(int j) const {
    if constexpr (has_tops<K>) {
      return row_factor[j];
    } else {
      return sum_factor<K>();
    }
  }

  // The sums of a token that belong to rows which are not ordinary; `left` rows exist.
  __device__ __forceinline__ void replace_special(float (&value)[4], int token, std::int64_t row,
                                                  std::int64_t left) const {
#pragma unroll 1
    for (int j = 0; j < 4; ++j) {
      const auto kind = static_cast<RowKind>(kinds >> (8 * j) & 0xFFu);
      if (kind == RowKind::ordinary || j >= left) continue;
      float other = float_of(float32::nan_bits);
      if (kind == RowKind::special) {
        other = multiply_special<K>(
            p, weights, p.x + batch * p.x_batch_bytes + (first_token + token) * p.x_row_bytes,
            row + j);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) value[k] = k == j ? other : value[k];
    }
  }
};

}  // namespace mxkern::kernels::few
