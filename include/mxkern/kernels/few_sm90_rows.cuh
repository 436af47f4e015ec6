// mxkern/kernels/few_sm90_rows.cuh: four adjacent rows of weights, whose outputs a thread finishes
// for one token after the other.
#pragma once

#include <cstdint>

#include "mxkern/kernels/few_finish.cuh"
#include "mxkern/kernels/few_parameters.h"

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
