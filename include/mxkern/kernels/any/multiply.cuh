// mxkern/kernels/any/multiply.cuh: products of float32 matrices in float32, with scales of sums
// over blocks of k where there are.
#pragma once

#include <cstdint>

#include "mxkern/core/dtype.h"
#include "mxkern/kernels/any/parameters.h"

namespace mxkern::kernels {

struct AnyMultiplyParameters {
  AnyView a, b, out, bias;  // bias: without data where there is none
  std::int64_t m, n, k;
  DType out_dtype, bias_dtype;
  float alpha, beta;
  std::int64_t scale_block;  // k, where there are no scales
  const float* a_scales;
  const float* b_scales;
  std::int64_t a_scale_rows, b_scale_rows;
  bool one_b;  // serves all
};

inline constexpr int any_tile = 64, any_tile_depth = 16;

template <class T>
__device__ __forceinline__ void any_finish(const AnyMultiplyParameters& p, T* out, float bias,
                                           float sum) {
  float value = sum * p.alpha + bias;
  if (p.beta != 0.0f) value = value + p.beta * to_float(*out);
  *out = from_float<T>(with_one_nan(value));
}

__device__ __forceinline__ float any_bias(const AnyMultiplyParameters& p, std::int64_t n) {
  if (p.bias.data == nullptr) return 0.0f;
  switch (p.bias_dtype) {
    case DType::float32: return static_cast<const float*>(p.bias.data)[n];
    case DType::float16: return to_float(static_cast<const float16*>(p.bias.data)[n]);
    case DType::bfloat16: return to_float(static_cast<const bfloat16*>(p.bias.data)[n]);
  }
  return 0.0f;
}

// A tile of 64 x 64, four by four a thread.
template <class T>
__global__ void __launch_bounds__(256)
    any_multiply_kernel(const __grid_constant__ AnyMultiplyParameters p) {
  __shared__ float left[any_tile_depth][any_tile + 1], right[any_tile_depth][any_tile + 1];
  const std::int64_t batch = blockIdx.z;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * any_tile;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * any_tile;
  const float* a = static_cast<const float*>(p.a.data) + batch * p.a.batch_stride;
  const float* b = static_cast<const float*>(p.b.data) + (p.one_b ? 0 : batch) * p.b.batch_stride;
  const int tx = static_cast<int>(threadIdx.x) % 16, ty = static_cast<int>(threadIdx.x) / 16;
  const std::int64_t blocks = ceil_div(p.k, p.scale_block);
  float sums[4][4] = {};
  for (std::int64_t block = 0; block < blocks; ++block) {
    float parts[4][4] = {};
    const std::int64_t end = lower_of((block + 1) * p.scale_block, p.k);
    for (std::int64_t start = block * p.scale_block; start < end; start += any_tile_depth) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < any_tile * any_tile_depth; i += 256) {
        const int r = i / any_tile_depth, c = i % any_tile_depth;
        const bool is_deep = start + c < end;
        left[c][r] = is_deep && row + r < p.m ? a[(row + r) * p.a.row_stride + start + c] : 0.0f;
        right[c][r] =
            is_deep && column + r < p.n ? b[(column + r) * p.b.row_stride + start + c] : 0.0f;
      }
      __syncthreads();
      for (int c = 0; c < any_tile_depth; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            parts[i][j] = parts[i][j] + left[c][ty * 4 + i] * right[c][tx * 4 + j];
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float scale = 1.0f;
        const std::int64_t m = row + ty * 4 + i, n = column + tx * 4 + j;
        if (p.a_scales != nullptr && m < p.m && n < p.n) {
          const std::int64_t a_down = ceil_div(p.m, p.a_scale_rows);
          const std::int64_t b_down = ceil_div(p.n, p.b_scale_rows);
          scale =
              p.a_scales[(batch * a_down + m / p.a_scale_rows) * blocks + block] *
              p.b_scales[((p.one_b ? 0 : batch) * b_down + n / p.b_scale_rows) * blocks + block];
        }
        sums[i][j] =
            p.a_scales != nullptr ? sums[i][j] + parts[i][j] * scale : sums[i][j] + parts[i][j];
      }
    }
  }
  T* const out = static_cast<T*>(p.out.data) + batch * p.out.batch_stride;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const std::int64_t m = row + ty * 4 + i, n = column + tx * 4 + j;
      if (m < p.m && n < p.n) {
        any_finish(p, out + m * p.out.row_stride + n, any_bias(p, n), sums[i][j]);
      }
    }
  }
}

}  // namespace mxkern::kernels
