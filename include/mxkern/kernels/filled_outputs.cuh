// mxkern/kernels/filled_outputs.cuh: outputs that are filled with one value.
#pragma once

#include <cstdint>

#include "mxkern/core/dtype.h"

namespace mxkern::kernels {

// Outputs of a rectangle, all of them the same.
struct FilledOutputs {
  void* data;
  DType dtype;
  std::int64_t row_stride;
  std::int64_t first_row, rows, first_column, columns;

  // By all threads of a thread block.
  __device__ __forceinline__ void fill(float value) const {
    fill(value, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
  }
  // By so many threads, of which this is one.
  __device__ __forceinline__ void fill(float value, int thread, int threads) const {
    if (columns <= 0) return;
    for (std::int64_t i = thread; i < rows * columns; i += threads) {
      const std::int64_t row = first_row + i / columns;
      const std::int64_t at = row * row_stride + first_column + i % columns;
      if (dtype == DType::float32) {
        static_cast<float*>(data)[at] = value;
      } else if (dtype == DType::float16) {
        static_cast<float16*>(data)[at] = from_float<float16>(value);
      } else {
        static_cast<bfloat16*>(data)[at] = from_float<bfloat16>(value);
      }
    }
  }
};

}  // namespace mxkern::kernels
