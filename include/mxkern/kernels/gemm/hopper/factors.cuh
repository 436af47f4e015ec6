// mxkern/kernels/gemm/hopper/factors.cuh: what the sums of a tile are multiplied by.
#pragma once

#include <cstdint>

#include "mxkern/core/dtype.h"
#include "mxkern/kernels/gemm/common_factor.cuh"
#include "mxkern/kernels/gemm/hopper/tile_order.cuh"
#include "mxkern/kernels/device/runtime_dtype.cuh"

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
  std::int64_t rows, columns;             // of the product
  std::int64_t row_stride, batch_stride;  // of the output
  bool stores_boxes;  // rows of `out` start and end on 16 bytes: the copy engine can write it
};

// Exponents with which sums may be rounded to bfloat16 before they are multiplied by the powers of
// a row and a column, one after the other.
struct PowerRange {
  int least, most;

  __device__ __forceinline__ bool has(int exponent) const {
    return exponent >= least && exponent <= most;
  }
};

// Sums of products of two 8-bit floats are 0 or between 2^-32 and 2^63, and stay normal numbers.
inline constexpr PowerRange folded_powers{-30, 30};
// Sums of expanded rows, which are less than 2^88: none overflows on the way, and those from 1 on
// stay normal.
inline constexpr PowerRange expanded_powers{-60, 30};
// Others may be any.
inline constexpr PowerRange no_powers{1, 0};

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
  __device__ __forceinline__ bool is_power() const { return fabsf(fraction) == 0.5f; }
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

__device__ __forceinline__ int left_exponent(const FinishParameters& p, std::int64_t row,
                                             int batch) {
  const bool has = p.left_exponents && row < p.rows;
  return has ? p.left_exponents[batch * p.left_exponents_batch + row] : 0;
}

__device__ __forceinline__ int right_exponent(const FinishParameters& p, std::int64_t column,
                                              int batch) {
  const bool has = p.right_exponents && column < p.columns;
  return has ? p.right_exponents[batch * p.right_exponents_batch + column] : 0;
}

// Which sums a kernel may round before it multiplies them by powers of two: all, those that it sees
// to be large, or none, as it has no registers to look.
enum class RoundedFirst { all, large, none };

// How the values of a tile are worked out and stored. The copy engine stores what is not extreme,
// and reads what it is added to; the shortest way is that of 16 bits that are multiplied by powers
// of two alone. In other boxes are 32 bits, and what is added to the output.
enum class FinishWay { by_powers, boxes_of_bfloat16, boxes_of_float16, other_boxes, slowly };

// The factors of a tile in shared memory, and where it lies: the divisions for that take as long as
// the products of a step. One warp fetches them while others multiply.
// Transposed: the tile's rows are the columns of the output, and have the bias.
template <int Rows, int Columns, bool Transposed>
struct TileFactors {
  // The columns' powers of two as pairs of bfloat16, the first one low; a lane's of 32 columns lie
  // next to one another.
  alignas(16) std::uint32_t powers[Columns / 2];
  // -0: none, which changes no sum, not even a zero's sign.
  float bias[Transposed ? Rows : Columns];
  float rows[Rows];
  std::int16_t row_exponents[Rows];
  TileCorner corner;
  FinishWay way;
  bool is_easy;  // whether all exponents are: then a row's factor times a column's is the factor
  CommonFactor common;

  // Where `powers` has the columns 2 * pair and 2 * pair + 1.
  __device__ __forceinline__ static int place(int pair) {
    return pair / 16 * 16 + pair % 4 * 4 + pair / 4 % 4;
  }
  __device__ __forceinline__ float power_of(int column) const {
    return unpack_pair(DType::bfloat16, powers[place(column / 2)] >> column % 2 * 16).x;
  }
  // Of a lane's columns of 32: a pair of every eight.
  __device__ __forceinline__ void load_powers(std::uint32_t (&pairs)[4], int thirty_two,
                                              int lane) const {
    const uint4 four = reinterpret_cast<const uint4*>(powers)[thirty_two * 4 + lane % 4];
    pairs[0] = four.x, pairs[1] = four.y, pairs[2] = four.z, pairs[3] = four.w;
  }

  // exponent_of(row): of the left operand, of a row of the tile.
  template <class ExponentOf>
  __device__ __forceinline__ void fetch(const FinishParameters& p, const CommonFactor& all,
                                        const TileCorner& tile, const PowerRange& range,
                                        ExponentOf&& exponent_of) {
    const std::int64_t first_column = tile.column;
    const int batch = tile.batch;
    const int lane = threadIdx.x % 32;
    bool are_easy = true, are_powers = true;
#pragma unroll
    for (int i = lane; i < Rows; i += 32) {
      const int exponent = exponent_of(i);
      row_exponents[i] = static_cast<std::int16_t>(exponent);
      const RowFactor row{all.fraction, all.exponent + exponent};
      are_easy = are_easy && row.is_easy();
      are_powers = are_powers && row.is_power() && range.has(row.exponent);
      rows[i] = row.fraction * RowFactor::power(row.exponent);
      if constexpr (Transposed) bias[i] = bias_of(p, std::int64_t{tile.row} + i, p.rows);
    }
    auto* halves = reinterpret_cast<std::uint16_t*>(powers);
#pragma unroll 2
    for (int i = lane; i < Columns; i += 32) {
      const int exponent = right_exponent(p, first_column + i, batch);
      are_easy = are_easy && RowFactor::is_easy(exponent);
      are_powers = are_powers && range.has(exponent);
      halves[place(i / 2) * 2 + i % 2] =
          static_cast<std::uint16_t>(__float_as_uint(RowFactor::power(exponent)) >> 16);
      if constexpr (!Transposed) bias[i] = bias_of(p, first_column + i, p.columns);
    }
    are_easy = __all_sync(0xFFFFFFFFu, are_easy);
    are_powers = __all_sync(0xFFFFFFFFu, are_powers);
    if (lane == 0) {
      corner = tile;
      is_easy = are_easy;
      way = way_of(p, are_easy, are_powers);
      common = all;
    }
  }

  // The same for tiles that follow each other so soon that waiting for memory counts: everything is
  // asked for at once, and ahead of wait(), which returns when nobody needs the factors before any
  // more.
  template <class ExponentOf, class Wait>
  __device__ __forceinline__ void fetch_ahead(const FinishParameters& p, const CommonFactor& all,
                                              const TileCorner& tile, const PowerRange& range,
                                              ExponentOf&& exponent_of, Wait&& wait) {
    static_assert(!Transposed);
    const int lane = threadIdx.x % 32;
    int left[Rows / 32], right[Columns / 32];
#pragma unroll
    for (int i = 0; i < Rows / 32; ++i) left[i] = exponent_of(i * 32 + lane);
#pragma unroll
    for (int i = 0; i < Columns / 32; ++i) {
      right[i] = right_exponent(p, std::int64_t{tile.column} + i * 32 + lane, tile.batch);
    }
    bool are_easy = true, are_powers = true;
#pragma unroll
    for (const int exponent : left) {
      const RowFactor row{all.fraction, all.exponent + exponent};
      are_easy = are_easy && row.is_easy();
      are_powers = are_powers && row.is_power() && range.has(row.exponent);
    }
#pragma unroll
    for (const int exponent : right) {
      are_easy = are_easy && RowFactor::is_easy(exponent);
      are_powers = are_powers && range.has(exponent);
    }
    are_easy = __all_sync(0xFFFFFFFFu, are_easy);
    are_powers = __all_sync(0xFFFFFFFFu, are_powers);
    wait();
#pragma unroll
    for (int i = 0; i < Rows / 32; ++i) {
      const int row = i * 32 + lane;
      row_exponents[row] = static_cast<std::int16_t>(left[i]);
      rows[row] = all.fraction * RowFactor::power(all.exponent + left[i]);
    }
    auto* halves = reinterpret_cast<std::uint16_t*>(powers);
#pragma unroll
    for (int i = 0; i < Columns / 32; ++i) {
      const int column = i * 32 + lane;
      halves[place(column / 2) * 2 + column % 2] =
          static_cast<std::uint16_t>(__float_as_uint(RowFactor::power(right[i])) >> 16);
      bias[column] = bias_of(p, std::int64_t{tile.column} + column, p.columns);
    }
    if (lane == 0) {
      corner = tile;
      is_easy = are_easy;
      way = way_of(p, are_easy, are_powers);
      common = all;
    }
  }

 private:
  __device__ __forceinline__ static float bias_of(const FinishParameters& p, std::int64_t i,
                                                  std::int64_t count) {
    const bool has_bias = p.bias && i < count;
    return has_bias ? load_as_float(p.bias, p.bias_dtype, i) : -0.0f;
  }

  __device__ __forceinline__ static FinishWay way_of(const FinishParameters& p, bool are_easy,
                                                     bool are_powers) {
    if (!are_easy || !p.stores_boxes) return FinishWay::slowly;
    if (Transposed && p.beta != 0.0f) return FinishWay::slowly;
    if (p.dtype == DType::float32 || p.beta != 0.0f) return FinishWay::other_boxes;
    if (p.dtype == DType::float16) return FinishWay::boxes_of_float16;
    return are_powers && !p.bias ? FinishWay::by_powers : FinishWay::boxes_of_bfloat16;
  }
};

}  // namespace mxkern::kernels
