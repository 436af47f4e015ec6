// mxkern/kernels/experts/swiglu.cuh: SwiGLU of rows of gates and of what they let through.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/device/vector_io.cuh"
#include "mxkern/numerics/swiglu.h"

namespace mxkern::kernels {

inline constexpr int swiglu_threads = 256;

struct SwigluParameters {
  const void* x;
  void* out;
  std::int64_t batch, rows, columns;                                            // of out
  std::int64_t x_batch_stride, x_row_stride, out_batch_stride, out_row_stride;  // in elements
  float alpha, limit, offset;
  bool vectors;         // rows of x and of out start on 16 bytes
  bool vectors_behind;  // so does the second half of each row of x
};

// Eight results of gates and of what they let through, 16 adjacent elements in two octets where
// these are interleaved.
template <class T, bool Interleaved>
__device__ __forceinline__ RawOctet<T> swiglu_octet(const RawOctet<T>& one,
                                                    const RawOctet<T>& other, float alpha,
                                                    float limit, float offset) {
  float first[8], second[8], result[8];
  unpack(one, first);
  unpack(other, second);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float(&pairs)[8] = i < 4 ? first : second;
    const float gate = Interleaved ? pairs[2 * i % 8] : first[i];
    const float up = Interleaved ? pairs[2 * i % 8 + 1] : second[i];
    result[i] = swiglu(gate, up, alpha, limit, offset);
  }
  return pack<T>(result);
}

// An octet of a row by a thread.
template <class T, bool Interleaved>
__global__ void __launch_bounds__(swiglu_threads)
    swiglu_kernel(const __grid_constant__ SwigluParameters p) {
  wait_for_kernels_ahead();
  let_dependents_start();
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x) * swiglu_threads + threadIdx.x) * 8;
  const std::int64_t count = p.columns - column;
  if (count <= 0) return;
  for (std::int64_t batch = blockIdx.z; batch < p.batch; batch += gridDim.z) {
    for (std::int64_t row = blockIdx.y; row < p.rows; row += gridDim.y) {
      const T* const line =
          static_cast<const T*>(p.x) + batch * p.x_batch_stride + row * p.x_row_stride;
      T* const to = static_cast<T*>(p.out) + batch * p.out_batch_stride + row * p.out_row_stride;
      // Where the two octets are, and how many elements of them.
      const T* const one = line + (Interleaved ? 2 * column : column);
      const T* const other = Interleaved ? one + 8 : one + p.columns;
      const std::int64_t first = Interleaved ? 2 * count : count;
      const std::int64_t second = Interleaved ? first - 8 : count;
      const RawOctet<T> result = swiglu_octet<T, Interleaved>(
          load_guarded(one, first, p.vectors),
          load_guarded(other, second, Interleaved ? p.vectors : p.vectors_behind), p.alpha, p.limit,
          p.offset);
      if (p.vectors && count >= 8) {
        store_octet(to + column, result);
      } else {
        store_elements(to + column, result, count);
      }
    }
  }
}

}  // namespace mxkern::kernels
