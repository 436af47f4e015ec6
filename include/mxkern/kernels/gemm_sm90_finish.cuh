// mxkern/kernels/gemm_sm90_finish.cuh: from sums in registers to the output: scales, bias,
// rounding.
#pragma once

#include <cstdint>

#include "mxkern/core/dtype.h"
#include "mxkern/kernels/gemm_sm90_factors.cuh"
#include "mxkern/kernels/ptx/mbarrier.cuh"
#include "mxkern/kernels/ptx/stmatrix.cuh"
#include "mxkern/kernels/ptx/tma.cuh"

namespace mxkern::kernels {

// A warp finishes its part of a tile of Rows x Columns: 16 rows. Warps store on their own, boxes of
// 16 rows of 128 bytes; Slots of them may be on their way.
template <int Rows, int Columns, int Slots>
struct Finish {
  static constexpr int chunk = 64;  // columns at a time
  static constexpr int box_rows = 16;
  static constexpr int box_bytes = box_rows * 128;
  static constexpr int staging_bytes = Slots * box_bytes;  // of a warp
  using Factors = TileFactors<Rows, Columns>;

  const FinishParameters& p;
  const CUtensorMap& map;
  unsigned char* staging;
  RowFactor common;
  int lane;
  int slot = 0;

  // The warp's sums of a tile. Its first row lies `row_in_tile` below the tile's.
  __device__ __forceinline__ void tile(const float (&sums)[Columns / 2], const Factors& factors,
                                       int row_in_tile, std::int64_t first_row,
                                       std::int64_t first_column, int batch) {
    const float* own = factors.rows + row_in_tile + lane / 4;
    const float row_factors[2] = {own[0], own[8]};
    const bool easy = factors.easy;
    const std::int64_t row = first_row + row_in_tile;
#pragma unroll
    for (int c = 0; c < Columns / chunk; ++c) {
      const std::int64_t column = first_column + c * chunk;
      if (column >= p.columns || row >= p.rows) break;
      float values[chunk / 2];
#pragma unroll
      for (int i = 0; i < chunk / 2; ++i) values[i] = sums[c * (chunk / 2) + i];
      if (easy) {
#pragma unroll
        for (int i = 0; i < chunk / 2; i += 4) {
          const int at = c * chunk + i * 2 + lane % 4 * 2;
          const float2 factor = *reinterpret_cast<const float2*>(factors.columns + at);
          const float2 bias = *reinterpret_cast<const float2*>(factors.bias + at);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float* pair = values + i + half * 2;
            pair[0] = __fmaf_rn(pair[0], row_factors[half] * factor.x, bias.x);
            pair[1] = __fmaf_rn(pair[1], row_factors[half] * factor.y, bias.y);
          }
        }
      } else {
        finish_slowly(values, row, column, batch);
        if (!p.stores_boxes) continue;
      }
      if (p.dtype == DType::float32) {
        store_float32(values, row, column, batch);
      } else {
        store_16_bits(values, row, column, batch);
      }
    }
  }

  // Before the block's memory goes away.
  __device__ __forceinline__ void wait() const {
    if (lane == 0) ptx::tma_wait_stores_read<0>();
  }

 private:
  // For what is rare, by a loop instead of straight code, which would be long: extreme exponents,
  // beta, outputs that the copy engine cannot write. Values pass through shared memory, which a
  // loop can index, and where a row's values are neighbours.
  __device__ __forceinline__ void finish_slowly(float (&values)[chunk / 2], std::int64_t first_row,
                                                std::int64_t column, int batch) const {
    float* staged = reinterpret_cast<float*>(staging);
    wait();
    __syncwarp();
#pragma unroll
    for (int side = 0; side < 2; ++side) {  // 32 columns each
      float* own = values + side * (chunk / 4);
#pragma unroll
      for (int i = 0; i < chunk / 4; ++i) staged[i * 32 + lane] = own[i];
      __syncwarp();
#pragma unroll 1
      for (int i = 0; i < box_rows; ++i) {
        const std::int64_t row = first_row + i, at = column + side * 32 + lane;
        if (row >= p.rows || at >= p.columns) continue;
        // Where the fragment of a warpgroup's product has the element.
        const int value_index = lane / 8 * 4 + i / 8 * 2 + lane % 2;
        float& value = staged[value_index * 32 + i % 8 * 4 + lane % 8 / 2];
        const std::int64_t index = batch * p.batch_stride + row * p.row_stride + at;
        const RowFactor factor{common.fraction, common.exponent + left_exponent(p, row, batch)};
        float result = factor.hard(value, right_exponent(p, at, batch));
        if (p.beta != 0.0f) {
          result = __fmaf_rn(p.beta, load_as_float(p.out, p.dtype, index), result);
        }
        if (p.bias) result += load_as_float(p.bias, p.bias_dtype, at);
        if (p.stores_boxes) {
          value = result;
        } else {
          store_from_float(p.out, p.dtype, index, result);
        }
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < chunk / 4; ++i) own[i] = staged[i * 32 + lane];
      __syncwarp();
    }
  }

  // A box's 16-byte pieces lie where the copy engine's swizzle has them.
  __device__ __forceinline__ void store_16_bits(const float (&values)[chunk / 2],
                                                std::int64_t first_row, std::int64_t column,
                                                int batch) {
    if (lane == 0) ptx::tma_wait_stores_read<Slots - 1>();
    __syncwarp();
    unsigned char* box = staging + slot * box_bytes;
    const int row = lane % 16;
    const std::uint32_t start = ptx::shared_address(box) + row * 128;
#pragma unroll
    for (int i = 0; i < chunk / 2; i += 8) {
      const int piece = (i / 4 + lane / 16) ^ (row % 8);
      ptx::stmatrix(start + piece * 16, pack_pair(p.dtype, values[i], values[i + 1]),
                    pack_pair(p.dtype, values[i + 2], values[i + 3]),
                    pack_pair(p.dtype, values[i + 4], values[i + 5]),
                    pack_pair(p.dtype, values[i + 6], values[i + 7]));
    }
    send(box, first_row, column, batch);
  }

  __device__ __forceinline__ void store_float32(const float (&values)[chunk / 2],
                                                std::int64_t first_row, std::int64_t column,
                                                int batch) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {  // 32 columns each
      if (column + side * 32 >= p.columns) break;
      if (lane == 0) ptx::tma_wait_stores_read<Slots - 1>();
      __syncwarp();
      unsigned char* box = staging + slot * box_bytes;
#pragma unroll
      for (int i = 0; i < chunk / 4; i += 2) {
        const int row = lane / 4 + i / 2 % 2 * 8;
        const int column_in_box = i / 4 * 8 + lane % 4 * 2;
        const int piece = (column_in_box / 4) ^ (row % 8);
        *reinterpret_cast<float2*>(box + row * 128 + piece * 16 + column_in_box % 4 * 4) =
            make_float2(values[side * 16 + i], values[side * 16 + i + 1]);
      }
      send(box, first_row, column + side * 32, batch);
    }
  }

  __device__ __forceinline__ void send(const unsigned char* box, std::int64_t first_row,
                                       std::int64_t column, int batch) {
    ptx::fence_shared_for_tma();
    __syncwarp();
    if (lane == 0) {
      ptx::tma_store(map, ptx::shared_address(box), static_cast<int>(column),
                     static_cast<int>(first_row), batch, 0);
      ptx::tma_commit_stores();
    }
    slot = (slot + 1) % Slots;
  }
};

}  // namespace mxkern::kernels
