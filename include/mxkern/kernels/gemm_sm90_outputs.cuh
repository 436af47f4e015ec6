// mxkern/kernels/gemm_sm90_outputs.cuh: a warp's finished values to an output, or to its transpose.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/core/dtype.h"
#include "mxkern/core/math.h"
#include "mxkern/kernels/gemm_sm90_factors.cuh"
#include "mxkern/kernels/gemm_sm90_order.cuh"
#include "mxkern/kernels/ptx/elect.cuh"
#include "mxkern/kernels/ptx/mbarrier.cuh"
#include "mxkern/kernels/ptx/stmatrix.cuh"
#include "mxkern/kernels/ptx/tma.cuh"

namespace mxkern::kernels {

// What a warp finishes at a time: 64 columns of its 16 rows of a tile. Of 8 columns each lane has
// two, of the rows lane / 4 and 8 below.
struct WarpChunk {
  static constexpr int rows = 16, columns = 64;
  static constexpr int bytes = rows * columns * 2;
  using Values = float[columns / 2];
  using Words = std::uint32_t[columns / 4];  // two values of 16 bits each
};

// The output has the tiles' rows. 16-bit values go as boxes of 16 rows of 128 bytes, of which Slots
// may be on their way. Grouped: what a tile has behind `end` is not its own, and its batch is that
// of the right operand.
template <int Slots, bool Grouped = false>
struct StraightOutput {
  using Values = WarpChunk::Values;
  static constexpr int chunk = WarpChunk::columns;

  const FinishParameters& p;
  const CUtensorMap& map;
  unsigned char* staging;  // of Slots chunks
  int lane;
  int end = 0;

  __device__ __forceinline__ std::int64_t end_of_rows() const { return Grouped ? end : p.rows; }

  // values += beta * out.
  template <class T>
  __device__ __forceinline__ void add(Values& values, const TileCorner& corner, int row_in_tile,
                                      int c) const {
    using Pair = std::conditional_t<sizeof(T) == 4, uint2, std::uint32_t>;
    const std::int64_t column = corner.column + c * chunk;
    const int count = pieces(column);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const T* from = place<T>(half, corner.row + row_in_tile, column, corner.batch);
      Pair before[chunk / 8] = {};
#pragma unroll
      for (int i = 0; i < chunk / 8; ++i) {
        if (from && i < count) before[i] = *reinterpret_cast<const Pair*>(from + i * 8);
      }
#pragma unroll
      for (int i = 0; i < chunk / 8; ++i) {
        const float2 pair = unpack_pair(p.dtype, before[i]);
        float* value = values + i * 4 + half * 2;
        value[0] = __fmaf_rn(p.beta, pair.x, value[0]);
        value[1] = __fmaf_rn(p.beta, pair.y, value[1]);
      }
    }
  }

  __device__ __forceinline__ void store(const Values& values, const TileCorner& corner,
                                        int row_in_tile, int c) const {
    const std::int64_t column = corner.column + c * chunk;
    const int count = pieces(column);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float* to = place<float>(half, corner.row + row_in_tile, column, corner.batch);
#pragma unroll
      for (int i = 0; i < chunk / 8; ++i) {
        const float* value = values + i * 4 + half * 2;
        if (to && i < count)
          *reinterpret_cast<float2*>(to + i * 8) = make_float2(value[0], value[1]);
      }
    }
  }

  // Puts a chunk where send() takes it from. A box's 16-byte pieces lie where the copy engine's
  // swizzle has them.
  __device__ __forceinline__ void put(const WarpChunk::Words& words, const TileCorner& corner,
                                      int row_in_tile, int c) const {
    const std::uint32_t box = ptx::shared_address(staging) + c % Slots * WarpChunk::bytes;
    const int row = lane % 16;
    const std::uint32_t first = box + row * 128 + ((lane / 16 ^ row % 8) << 4);
    if (Slots == 1 || is_cut(corner, row_in_tile)) {
      wait();
    } else {
      ptx::tma_wait_stores_read<higher_of(Slots - 2, 0)>();  // but for the chunk before
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < chunk / 4; i += 4) {
      ptx::stmatrix(first ^ i * 8, words[i], words[i + 1], words[i + 2], words[i + 3]);
    }
    // Of the chunk before. Right behind its store this waits until the copy engine has that.
    if (Slots > 1) ptx::tma_commit_stores();
    ptx::fence_shared_for_tma();
  }

  // Boxes outside of the output are stored like others: the copy engine leaves them out.
  __device__ __forceinline__ void send(const TileCorner& corner, int row_in_tile, int c) const {
    __syncwarp();
    if (is_cut(corner, row_in_tile)) {
      store_cut(staging + c % Slots * WarpChunk::bytes, corner.row + row_in_tile,
                corner.column + c * chunk);
      __syncwarp();
    } else if (ptx::elect()) {
      const std::uint32_t box = ptx::shared_address(staging) + c % Slots * WarpChunk::bytes;
      ptx::tma_store(map, box, corner.column + c * chunk, corner.row + row_in_tile,
                     Grouped ? 0 : corner.batch, 0);
    }
  }

  // Before other values come to the staging, or its memory goes away.
  __device__ __forceinline__ void wait() const {
    ptx::tma_commit_stores();
    ptx::tma_wait_stores_read<0>();
  }

  __device__ __forceinline__ std::int64_t index(std::int64_t row, std::int64_t column,
                                                int batch) const {
    return batch * p.batch_stride + row * p.row_stride + column;
  }

 private:
  __device__ __forceinline__ bool is_cut(const TileCorner& corner, int row_in_tile) const {
    return Grouped && corner.row + row_in_tile + WarpChunk::rows > end;
  }

  // Rows of a box up to the end.
  __device__ __forceinline__ void store_cut(const unsigned char* box, int first_row,
                                            int first_column) const {
    constexpr int piece = 8, pieces = chunk / piece;  // of 16 bytes
#pragma unroll
    for (int i = lane; i < WarpChunk::rows * pieces; i += 32) {
      const int row = i / pieces, own = i % pieces;
      const uint4 values =
          *reinterpret_cast<const uint4*>(box + row * 128 + ((own ^ row % 8) << 4));
      const std::int64_t column = std::int64_t{first_column} + own * piece;
      if (first_row + row >= end || column >= p.columns) continue;
      auto* to = static_cast<std::uint16_t*>(p.out) + index(first_row + row, column, 0);
      *reinterpret_cast<uint4*>(to) = values;
    }
  }

  // Where the output has value 0 of a half of the rows; a null pointer where it has none.
  template <class T>
  __device__ __forceinline__ T* place(int half, std::int64_t first_row, std::int64_t column,
                                      int batch) const {
    const std::int64_t row = first_row + lane / 4 + half * 8;
    if (row >= end_of_rows()) return nullptr;
    return static_cast<T*>(p.out) + index(row, column, batch) + lane % 4 * 2;
  }

  // How many of the 8-column pieces of a chunk this lane has a part of.
  __device__ __forceinline__ int pieces(std::int64_t column) const {
    const std::int64_t left = p.columns - column - lane % 4 * 2;
    return left >= chunk ? chunk / 8 : static_cast<int>((left + 7) / 8);
  }
};

// The output's rows are the tiles' columns: a warp has 16 values of each. 16-bit values are put
// side by side in shared memory, and two lanes store a row's; a lane's values of 32 bits go on
// their own, those of 8 lanes side by side.
template <int Slots>
struct TransposedOutput {
  using Values = WarpChunk::Values;
  static constexpr int chunk = WarpChunk::columns;
  static_assert(Slots > 1, "lanes may be one chunk apart");

  const FinishParameters& p;
  const CUtensorMap& map;  // of what the copy engine stores: nothing
  unsigned char* staging;  // of Slots chunks
  int lane;

  __device__ __forceinline__ std::int64_t end_of_rows() const { return p.rows; }

  __device__ __forceinline__ void store(const Values& values, const TileCorner& corner,
                                        int row_in_tile, int c) const {
    const std::int64_t row = std::int64_t{corner.row} + row_in_tile + lane / 4;
    const std::int64_t column = std::int64_t{corner.column} + c * chunk + lane % 4 * 2;
    auto* to = static_cast<float*>(p.out) + index(row, column, corner.batch);
    const int rows = static_cast<int>(p.rows - row), columns = static_cast<int>(p.columns - column);
#pragma unroll
    for (int i = 0; i < chunk / 2; ++i) {
      const int down = i / 2 % 2 * 8, right = i / 4 * 8 + i % 2;
      if (down < rows && right < columns) to[right * p.row_stride + down] = values[i];
    }
  }

  // 32 bytes of each column; of four the halves lie the other way round, so that eight are in all
  // banks.
  __device__ __forceinline__ void put(const WarpChunk::Words& words, const TileCorner&, int,
                                      int c) const {
    unsigned char* chunk_staging = staging + c % Slots * WarpChunk::bytes;
    const std::uint32_t first = ptx::shared_address(chunk_staging) +
                                (lane % 8 + lane / 16 * 8) * 32 + ((lane / 8 ^ lane / 4) % 2 << 4);
#pragma unroll
    for (int i = 0; i < chunk / 4; i += 4) {
      ptx::stmatrix_transposed(first + i * 128, words[i], words[i + 1], words[i + 2], words[i + 3]);
    }
  }

  __device__ __forceinline__ void send(const TileCorner& corner, int row_in_tile, int c) const {
    __syncwarp();
    const unsigned char* chunk_staging = staging + c % Slots * WarpChunk::bytes;
    const int own_column = lane / 2, half = lane % 2;
    const std::int64_t row = corner.row + row_in_tile + half * 8;
    const std::int64_t column = std::int64_t{corner.column} + c * chunk + own_column;
    auto* to = static_cast<std::uint16_t*>(p.out) + index(row, column, corner.batch);
    const unsigned char* from =
        chunk_staging + own_column * 32 + ((half ^ own_column / 4 % 2) << 4);
    const int count = static_cast<int>(p.columns - column);  // of this lane's and those behind it
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 eight = *reinterpret_cast<const uint4*>(from + i * 512);
      if (row < p.rows && i * 16 < count) {
        *reinterpret_cast<uint4*>(to + i * 16 * p.row_stride) = eight;
      }
    }
  }

  __device__ __forceinline__ void wait() const {}

  __device__ __forceinline__ std::int64_t index(std::int64_t row, std::int64_t column,
                                                int batch) const {
    return batch * p.batch_stride + column * p.row_stride + row;
  }
};

}  // namespace mxkern::kernels
