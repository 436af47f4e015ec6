// mxkern/kernels/gemm/hopper/store.cuh: a warp's finished values to an output, or to its transpose.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/kernels/gemm/hopper/factors.cuh"
#include "mxkern/kernels/gemm/hopper/tile_order.cuh"
#include "mxkern/kernels/ptx/elect.cuh"
#include "mxkern/kernels/ptx/ldmatrix.cuh"
#include "mxkern/kernels/ptx/mbarrier.cuh"
#include "mxkern/kernels/ptx/shared.cuh"
#include "mxkern/kernels/ptx/stmatrix.cuh"
#include "mxkern/kernels/ptx/tma.cuh"

namespace mxkern::kernels {

// What a warp finishes at a time: 64 columns of its 16 rows of a tile. Of 8 columns each lane has
// two, of the rows lane / 4 and 8 below.
struct WarpChunk {
  static constexpr int rows = 16, columns = 64;
  static constexpr int bytes = rows * columns * 2;
  using Values = float[columns / 2];
  using Words = std::uint32_t[columns / 4];  // of a box: two values of 16 bits each, or one of 32
};

// A box of the output in shared memory: 16 rows of 128 bytes, whose 16-byte pieces lie where the
// copy engine's swizzle has them. T: of as many bits as the output's type.
template <class T>
struct OutputBox {
  static constexpr int columns = 128 / static_cast<int>(sizeof(T));
  using Words = WarpChunk::Words;  // in the order of the sums

  __device__ __forceinline__ static void write(std::uint32_t box, int lane, const Words& words) {
    if constexpr (sizeof(T) == 4) {
      for_each_pair(box, lane, [&](std::uint32_t address, int i) {
        ptx::write_shared(address, make_uint2(words[i], words[i + 1]));
      });
    } else {
#pragma unroll
      for (int i = 0; i < WarpChunk::rows; i += 4) {
        ptx::stmatrix(first_matrix(box, lane) ^ i * 8, words[i], words[i + 1], words[i + 2],
                      words[i + 3]);
      }
    }
  }

  __device__ __forceinline__ static void read(std::uint32_t box, int lane, Words& words) {
    if constexpr (sizeof(T) == 4) {
      for_each_pair(box, lane, [&](std::uint32_t address, int i) {
        const uint2 pair = ptx::read_shared<uint2>(address);
        words[i] = pair.x, words[i + 1] = pair.y;
      });
    } else {
#pragma unroll
      for (int i = 0; i < WarpChunk::rows; i += 4) {
        std::uint32_t four[4];
        ptx::load_matrices(four, first_matrix(box, lane) ^ i * 8);
#pragma unroll
        for (int k = 0; k < 4; ++k) words[i + k] = four[k];
      }
    }
  }

 private:
  __device__ __forceinline__ static std::uint32_t first_matrix(std::uint32_t box, int lane) {
    const int row = lane % 16;
    return box + row * 128 + ((lane / 16 ^ row % 8) << 4);
  }

  // Where a lane's pairs of 32-bit values lie, and which they are.
  template <class Use>
  __device__ __forceinline__ static void for_each_pair(std::uint32_t box, int lane, Use&& use) {
    const int row = lane / 4;
    const std::uint32_t first = box + row * 128 + ((lane % 4 / 2 ^ row) << 4) + lane % 2 * 8;
#pragma unroll
    for (int i = 0; i < columns / 8; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        use((first ^ i * 32) + half * 8 * 128, i * 4 + half * 2);
      }
    }
  }
};

// The output has the tiles' rows. Values go as boxes, of which Slots may be on their way. Grouped:
// what a tile has behind `end` is not its own, and its batch is that of the right operand.
template <int Slots, bool Grouped = false>
struct StraightOutput {
  using Values = WarpChunk::Values;
  static constexpr int chunk = WarpChunk::columns;

  const FinishParameters& p;
  const CUtensorMap& map;
  unsigned char* staging;  // of Slots boxes
  int lane;
  std::uint32_t loads;  // barriers, one a slot
  int end = 0;
  std::uint32_t phases = 0;  // of these: a bit for each

  __device__ __forceinline__ std::int64_t end_of_rows() const { return Grouped ? end : p.rows; }

  // Puts a box's words where send() takes them from.
  template <class T>
  __device__ __forceinline__ void put(const typename OutputBox<T>::Words& words,
                                      const TileCorner& corner, int row_in_tile, int box) const {
    if (Slots == 1 || is_cut(corner, row_in_tile)) {
      wait();
    } else {
      ptx::tma_wait_stores_read<higher_of(Slots - 2, 0)>();  // but for the box before
    }
    __syncwarp();
    OutputBox<T>::write(slot(box), lane, words);
    // Of the box before. Right behind its store this waits until the copy engine has that.
    if (Slots > 1) ptx::tma_commit_stores();
    ptx::fence_shared_for_tma();
  }

  // Boxes outside of the output are stored like others: the copy engine leaves them out.
  template <class T>
  __device__ __forceinline__ void send(const TileCorner& corner, int row_in_tile, int box) const {
    __syncwarp();
    const int column = corner.column + box * OutputBox<T>::columns;
    if (is_cut(corner, row_in_tile)) {
      store_cut<T>(staging + box % Slots * WarpChunk::bytes, corner.row + row_in_tile, column);
      __syncwarp();
    } else if (ptx::elect()) {
      ptx::tma_store(map, slot(box), column, corner.row + row_in_tile, Grouped ? 0 : corner.batch,
                     0);
    }
  }

  // Has a box of what is in the output brought to its slot, once nothing is stored from there.
  template <class T>
  __device__ __forceinline__ void ask(const TileCorner& corner, int row_in_tile, int box) const {
    wait();
    __syncwarp();
    if (ptx::elect()) {
      const std::uint32_t barrier = loads + box % Slots * 8;
      ptx::mbarrier_expect(barrier, WarpChunk::bytes);
      ptx::tma_load(slot(box), map, barrier, corner.column + box * OutputBox<T>::columns,
                    corner.row + row_in_tile, Grouped ? 0 : corner.batch, 0);
    }
  }

  // Until what ask() has brought is there.
  __device__ __forceinline__ void wait_for(int box) {
    const int own = box % Slots;
    ptx::mbarrier_wait(loads + own * 8, phases >> own & 1);
    phases ^= 1u << own;
  }

  // Takes it.
  template <class T>
  __device__ __forceinline__ void take(typename OutputBox<T>::Words& words, int box) {
    wait_for(box);
    OutputBox<T>::read(slot(box), lane, words);
  }

  // Puts a box's words where take() has found others.
  template <class T>
  __device__ __forceinline__ void replace(const typename OutputBox<T>::Words& words,
                                          int box) const {
    OutputBox<T>::write(slot(box), lane, words);
    ptx::fence_shared_for_tma();
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

  __device__ __forceinline__ std::uint32_t slot(int box) const {
    return ptx::shared_address(staging) + box % Slots * WarpChunk::bytes;
  }

  // Rows of a box up to the end.
  template <class T>
  __device__ __forceinline__ void store_cut(const unsigned char* box, int first_row,
                                            int first_column) const {
    constexpr int pieces = 8;  // of 16 bytes
    constexpr int piece = OutputBox<T>::columns / pieces;
#pragma unroll
    for (int i = lane; i < WarpChunk::rows * pieces; i += 32) {
      const int row = i / pieces, own = i % pieces;
      const uint4 values =
          *reinterpret_cast<const uint4*>(box + row * 128 + ((own ^ row % 8) << 4));
      const std::int64_t column = std::int64_t{first_column} + own * piece;
      if (first_row + row >= end || column >= p.columns) continue;
      auto* to = static_cast<T*>(p.out) + index(first_row + row, column, 0);
      *reinterpret_cast<uint4*>(to) = values;
    }
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
  std::uint32_t loads;  // barriers of what it loads: nothing

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
  template <class T>
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

  template <class T>
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
