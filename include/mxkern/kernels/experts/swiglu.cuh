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

template <class T>
__device__ __forceinline__ void apply_swiglu(const SwigluParameters& p, const float (&gate)[8],
                                             const float (&up)[8], T* to, std::int64_t count) {
  float result[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) result[i] = swiglu(gate[i], up[i], p.alpha, p.limit, p.offset);
  const RawOctet<T> raw = pack<T>(result);
  if (p.vectors && count >= 8) {
    store_octet(to, raw);
  } else {
    store_elements(to, raw, count);
  }
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
      float first[8], second[8];
      if constexpr (Interleaved) {
        const T* const from = line + 2 * column;
        unpack(load_guarded(from, 2 * count, p.vectors), first);
        unpack(load_guarded(from + 8, 2 * count - 8, p.vectors), second);
        float gate[8], up[8];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          gate[i] = first[2 * i];
          up[i] = first[2 * i + 1];
          gate[i + 4] = second[2 * i];
          up[i + 4] = second[2 * i + 1];
        }
        apply_swiglu(p, gate, up, to + column, count);
      } else {
        unpack(load_guarded(line + column, count, p.vectors), first);
        unpack(load_guarded(line + p.columns + column, count, p.vectors_behind), second);
        apply_swiglu(p, first, second, to + column, count);
      }
    }
  }
}

}  // namespace mxkern::kernels
