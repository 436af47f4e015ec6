// mxkern/kernels/gemm/other_outputs.cuh: outputs that are no product's.
#pragma once

#include <cstdint>

#include "mxkern/core/dtype.h"
#include "mxkern/core/math.h"
#include "mxkern/kernels/device/runtime_dtype.cuh"

namespace mxkern::kernels {

// Outputs of a rectangle.
struct OtherOutputs {
  void* data;
  DType dtype;
  std::int64_t row_stride;
  std::int64_t first_row, rows, first_column, columns;

  // NaN, by all threads of a thread block.
  __device__ __forceinline__ void poison() const {
    poison(static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
  }
  // By so many threads, of which this is one.
  __device__ __forceinline__ void poison(int thread, int threads) const {
    for_each(thread, threads, [&](std::int64_t at) {
      store_from_float(data, dtype, at, float_of(float32::nan_bits));
    });
  }

  // beta times what they were, and zeros where it is 0, whatever they were.
  __device__ __forceinline__ void scale(float beta) const {
    scale(beta, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
  }
  __device__ __forceinline__ void scale(float beta, int thread, int threads) const {
    for_each(thread, threads, [&](std::int64_t at) {
      store_from_float(data, dtype, at,
                       beta == 0.0f ? 0.0f : beta * load_as_float(data, dtype, at));
    });
  }

 private:
  template <class Visitor>
  __device__ __forceinline__ void for_each(int thread, int threads, Visitor&& visitor) const {
    if (columns <= 0) return;
    for (std::int64_t i = thread; i < rows * columns; i += threads) {
      const std::int64_t row = first_row + i / columns;
      visitor(row * row_stride + first_column + i % columns);
    }
  }
};

}  // namespace mxkern::kernels
