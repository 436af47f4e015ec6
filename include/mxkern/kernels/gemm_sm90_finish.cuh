// mxkern/kernels/gemm_sm90_finish.cuh: from sums in registers to the output: scales, bias,
// rounding.
#pragma once

#include <cstdint>

#include "mxkern/core/dtype.h"
#include "mxkern/kernels/ptx/cluster.cuh"
#include "mxkern/kernels/ptx/stmatrix.cuh"
#include "mxkern/kernels/ptx/tma.cuh"

namespace mxkern::kernels {

// out = alpha * tensor scales * 2^(left + right exponent) * sum + beta * out + bias.
struct FinishParameters {
  float alpha, beta;
  const float *left_tensor_scale, *right_tensor_scale;       // null: 1
  const std::int32_t *left_exponents, *right_exponents;      // null: 0
  std::int64_t left_exponents_batch, right_exponents_batch;  // step from one matrix to the next
  const void* bias;                                          // null: 0
  DType bias_dtype;
  void* out;
  DType dtype;
  std::int64_t rows, columns, row_stride, batch_stride;
  bool stores_boxes;  // whether the copy engine can write `out`
};

__device__ __forceinline__ float load_as_float(const void* data, DType dtype, std::int64_t index) {
  if (dtype == DType::float32) return static_cast<const float*>(data)[index];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[index];
  if (dtype == DType::bfloat16) return to_float(bfloat16{bits});
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

// Rounds two values to 16 bits each, the first one low.
__device__ __forceinline__ std::uint32_t pack_pair(DType dtype, float low, float high) {
  std::uint32_t packed;
  if (dtype == DType::bfloat16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

__device__ __forceinline__ void store_from_float(void* data, DType dtype, std::int64_t index,
                                                 float value) {
  if (dtype == DType::float32) {
    static_cast<float*>(data)[index] = value;
  } else {
    static_cast<std::uint16_t*>(data)[index] =
        static_cast<std::uint16_t>(pack_pair(dtype, value, 0.0f));
  }
}

// fraction * 2^exponent. Exponents add up before they become a float: 2^left alone may overflow
// where 2^(left + right) does not.
struct RowFactor {
  float fraction;  // of alpha and the tensor scales
  int exponent;

  static constexpr int easy = 60;  // the product of two such powers is a normal float
  __device__ __forceinline__ bool is_easy() const { return exponent >= -easy && exponent <= easy; }
  static __device__ __forceinline__ bool is_easy(int exponent) {
    return exponent >= -easy && exponent <= easy;
  }
  static __device__ __forceinline__ float power(int exponent) {
    return float_of(static_cast<std::uint32_t>(exponent + 127) << 23);
  }
  // value * fraction * 2^(exponent + right), in three steps of a third of it each.
  __device__ __forceinline__ float hard(float value, int right) const {
    const int sum = exponent + right;
    const int all = sum < -375 ? -375 : sum > 375 ? 375 : sum;
    const int third = all / 3;
    const float first = value * fraction * power(third);
    return first * power(third) * power(all - 2 * third);
  }
};

// What a consumer warpgroup knows while it finishes its part of a tile: `Waves` times 64 rows of
// `Columns` columns.
template <int Waves, int Columns>
struct Finish {
  static constexpr int chunk = 64;  // columns at a time
  static constexpr int slot_bytes = 64 * 128;
  static constexpr int staging_bytes = 2 * slot_bytes;

  const FinishParameters& p;
  const CUtensorMap& map;
  unsigned char* staging;  // two boxes of 64 rows of 128 bytes
  int warpgroup;
  int thread;  // in the warpgroup
  int slot = 0;
  float fraction;
  int exponent;

  __device__ Finish(const FinishParameters& parameters, const CUtensorMap& out,
                    unsigned char* boxes, int group, int thread_in_group)
      : p(parameters), map(out), staging(boxes), warpgroup(group), thread(thread_in_group) {
    double factor = p.alpha;
    if (p.left_tensor_scale) factor *= *p.left_tensor_scale;
    if (p.right_tensor_scale) factor *= *p.right_tensor_scale;
    exponent = 0;
    fraction = isfinite(factor) ? static_cast<float>(frexp(factor, &exponent)) : factor;
  }

  // The warpgroup's sums of the tile whose first row and column these are.
  __device__ __forceinline__ void tile(const float (&sums)[Waves][Columns / 2],
                                       std::int64_t first_row, std::int64_t first_column,
                                       int batch) {
    const std::int64_t own_row = first_row + thread / 32 * 16 + thread % 32 / 4;
    RowFactor rows[Waves][2];
    bool easy_rows = p.stores_boxes && p.beta == 0.0f;
#pragma unroll
    for (int wave = 0; wave < Waves; ++wave) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        rows[wave][half] = row_factor(own_row + wave * 64 + half * 8, batch);
        easy_rows = easy_rows && rows[wave][half].is_easy();
      }
    }
#pragma unroll
    for (int c = 0; c < Columns / chunk; ++c) {
      const std::int64_t column = first_column + c * chunk;
      if (column >= p.columns) break;
      int powers[chunk / 4];
      bool easy = easy_rows;
#pragma unroll
      for (int i = 0; i < chunk / 4; ++i) {
        powers[i] = right_exponent(own_column(column, i * 2 - i % 2), batch);
        easy = easy && RowFactor::is_easy(powers[i]);
      }
      // One answer for the warpgroup: its threads store together.
      easy = all(easy);
#pragma unroll
      for (int wave = 0; wave < Waves; ++wave) {
        float values[chunk / 2];
#pragma unroll
        for (int i = 0; i < chunk / 2; ++i) values[i] = sums[wave][c * (chunk / 2) + i];
        if (easy) {
#pragma unroll
          for (int i = 0; i < chunk / 2; ++i) {
            const RowFactor& row = rows[wave][i / 2 % 2];
            values[i] *= row.fraction * RowFactor::power(row.exponent) *
                         RowFactor::power(powers[i / 4 * 2 + i % 2]);
          }
          if (p.bias) add_bias(values, column);
        } else {
          finish_slowly(values, own_row + wave * 64, column, batch);
          if (!p.stores_boxes) continue;
        }
        if (p.dtype == DType::float32) {
          store_float32(values, first_row + wave * 64, column, batch);
        } else {
          store_16_bits(values, first_row + wave * 64, column, batch);
        }
      }
    }
  }

  // Before the block's memory goes away.
  __device__ __forceinline__ void wait() const {
    if (thread == 0) ptx::tma_wait_stores_read<0>();
  }

 private:
  // Value i of a thread's part of a chunk lies i / 2 % 2 * 8 rows down and this far right.
  __device__ __forceinline__ std::int64_t own_column(std::int64_t column, int i) const {
    return column + i / 4 * 8 + thread % 4 * 2 + i % 2;
  }

  __device__ __forceinline__ RowFactor row_factor(std::int64_t row, int batch) const {
    const bool has = p.left_exponents && row < p.rows;
    return {fraction,
            exponent + (has ? p.left_exponents[batch * p.left_exponents_batch + row] : 0)};
  }

  __device__ __forceinline__ int right_exponent(std::int64_t column, int batch) const {
    const bool has = p.right_exponents && column < p.columns;
    return has ? p.right_exponents[batch * p.right_exponents_batch + column] : 0;
  }

  __device__ __forceinline__ bool all(bool condition) const {
    int result;
    asm volatile(
        "{\n"
        ".reg .pred in, out;\n"
        "setp.ne.b32 in, %1, 0;\n"
        "barrier.cta.red.and.pred out, %2, 128, in;\n"
        "selp.b32 %0, 1, 0, out;\n"
        "}\n"
        : "=r"(result)
        : "r"(static_cast<int>(condition)), "r"(1 + warpgroup)
        : "memory");
    return result != 0;
  }

  __device__ __forceinline__ void add_bias(float (&values)[chunk / 2], std::int64_t column) const {
#pragma unroll
    for (int i = 0; i < chunk / 2; i += 4) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const std::int64_t at = own_column(column, i + j);
        const float bias = at < p.columns ? load_as_float(p.bias, p.bias_dtype, at) : 0.0f;
        values[i + j] += bias;
        values[i + j + 2] += bias;
      }
    }
  }

  // For what is rare, by a loop instead of straight code, which would be long: extreme exponents,
  // beta, outputs that the copy engine cannot write. Values pass through shared memory, which a
  // loop can index.
  __device__ __forceinline__ void finish_slowly(float (&values)[chunk / 2], std::int64_t own_row,
                                                std::int64_t column, int batch) const {
    if (thread == 0) ptx::tma_wait_stores_read<0>();
    ptx::named_barrier(1 + warpgroup, 128);
    float* own = reinterpret_cast<float*>(staging) + thread;
#pragma unroll
    for (int i = 0; i < chunk / 2; ++i) own[i * 128] = values[i];
#pragma unroll 1
    for (int i = 0; i < chunk / 2; ++i) {
      const std::int64_t row = own_row + i / 2 % 2 * 8;
      const std::int64_t at = own_column(column, i);
      if (row >= p.rows || at >= p.columns) continue;
      const std::int64_t index = batch * p.batch_stride + row * p.row_stride + at;
      float value = row_factor(row, batch).hard(own[i * 128], right_exponent(at, batch));
      if (p.beta != 0.0f) value = __fmaf_rn(p.beta, load_as_float(p.out, p.dtype, index), value);
      if (p.bias) value += load_as_float(p.bias, p.bias_dtype, at);
      if (p.stores_boxes) {
        own[i * 128] = value;
      } else {
        store_from_float(p.out, p.dtype, index, value);
      }
    }
    if (!p.stores_boxes) return;
#pragma unroll
    for (int i = 0; i < chunk / 2; ++i) values[i] = own[i * 128];
  }

  // A box holds rows of 128 bytes; its 16-byte pieces lie where the copy engine's swizzle has them.
  __device__ __forceinline__ void store_16_bits(const float (&values)[chunk / 2],
                                                std::int64_t first_row, std::int64_t column,
                                                int batch) {
    if (thread == 0) ptx::tma_wait_stores_read<1>();
    ptx::named_barrier(1 + warpgroup, 128);
    unsigned char* box = staging + slot * slot_bytes;
    const int lane = thread % 32;
    const int row = thread / 32 * 16 + lane % 16;
    const std::uint32_t start = ptx::shared_address(box) + row * 128;
#pragma unroll
    for (int i = 0; i < chunk / 2; i += 8) {
      const int piece = (i / 4 + lane / 16) ^ (row % 8);
      ptx::stmatrix(start + piece * 16, pack_pair(p.dtype, values[i], values[i + 1]),
                    pack_pair(p.dtype, values[i + 2], values[i + 3]),
                    pack_pair(p.dtype, values[i + 4], values[i + 5]),
                    pack_pair(p.dtype, values[i + 6], values[i + 7]));
    }
    ptx::fence_shared_for_tma();
    ptx::named_barrier(1 + warpgroup, 128);
    if (thread == 0) {
      ptx::tma_store(map, box, static_cast<int>(column), static_cast<int>(first_row), batch, 0);
      ptx::tma_commit_stores();
    }
    slot ^= 1;
  }

  __device__ __forceinline__ void store_float32(const float (&values)[chunk / 2],
                                                std::int64_t first_row, std::int64_t column,
                                                int batch) {
    if (thread == 0) ptx::tma_wait_stores_read<0>();
    ptx::named_barrier(1 + warpgroup, 128);
    const int lane = thread % 32;
    const int own_row = thread / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < chunk / 2; i += 2) {
      const int row = own_row + i / 2 % 2 * 8;
      const int column_in_box = i / 4 % 4 * 8 + lane % 4 * 2;
      const int piece = (column_in_box / 4) ^ (row % 8);
      unsigned char* box = staging + i / 16 * slot_bytes;
      *reinterpret_cast<float2*>(box + row * 128 + piece * 16 + column_in_box % 4 * 4) =
          make_float2(values[i], values[i + 1]);
    }
    ptx::fence_shared_for_tma();
    ptx::named_barrier(1 + warpgroup, 128);
    if (thread == 0) {
      ptx::tma_store(map, staging, static_cast<int>(column), static_cast<int>(first_row), batch, 0);
      if (column + 32 < p.columns) {
        ptx::tma_store(map, staging + slot_bytes, static_cast<int>(column) + 32,
                       static_cast<int>(first_row), batch, 0);
      }
      ptx::tma_commit_stores();
    }
  }
};

}  // namespace mxkern::kernels
