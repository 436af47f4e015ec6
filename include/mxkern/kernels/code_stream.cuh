// mxkern/kernels/code_stream.cuh: rows of codes and their scales on their way to shared memory.
#pragma once

#include <cstdint>

#include "mxkern/kernels/ptx/copy_async.cuh"
#include "mxkern/kernels/row_team.cuh"
#include "mxkern/numerics/scale_format.h"
#include "mxkern/tensor/scale_layout.h"

namespace mxkern::kernels {

inline constexpr int stream_columns = 8192;      // of a row that are in a stage at most
inline constexpr int stream_stages = 4;          // of a thread block, three of them on their way
inline constexpr int stream_blocks = 6;          // of a multiprocessor
inline constexpr int most_staged_scales = 4096;  // of a row

// The rows of an operand, a group of 256 / 2^log2_team of them at a time, long rows in chunks. All
// of a row's scales come with each of its chunks, because what becomes of an element depends on the
// largest of them.
struct CodeStream {
  const std::uint8_t* codes;
  std::int64_t code_row_bytes;
  const std::uint8_t* scales;
  ScaleIndex scale_index;
  std::int64_t batch, rows, columns;
  std::int64_t groups;
  int chunks;  // of a row
  int log2_team;
  int bits;         // of a code
  int piece_bytes;  // that are copied at once: 16, 4 or 1
  int row_pitch;    // bytes of a chunk of a row in a stage
  int scale_words;  // of a row in a stage, four scales each; 0: scales are read from memory
  int stage_bytes;

  __host__ __device__ constexpr int team_rows() const { return team_threads >> log2_team; }
};

// Where a thread block is: every gridDim.x-th group, chunk by chunk.
struct StreamPosition {
  std::int64_t group;
  int chunk = 0;

  __device__ __forceinline__ void advance(int chunks) {
    if (++chunk < chunks) return;
    chunk = 0;
    group += gridDim.x;
  }
};

// A thread's view of its team's row of one group.
struct StreamRow {
  const CodeStream& s;
  RowTeam team;
  std::int64_t index;  // of the row in the batch
  bool exists;
  TeamRow at;
  std::int64_t first_column;
  int columns;  // in the chunk; 0: there is no row

  __device__ __forceinline__ StreamRow(const CodeStream& stream, const StreamPosition& position)
      : s(stream),
        team(stream.log2_team),
        index(position.group * stream.team_rows() + team.row),
        exists(index < stream.batch * stream.rows),
        at(exists ? index : 0, stream.rows),
        first_column(std::int64_t{position.chunk} * stream_columns),
        columns(exists ? static_cast<int>(
                             lower_of<std::int64_t>(stream.columns - first_column, stream_columns))
                       : 0) {}

  // Where the row's codes and scales are in a stage.
  __device__ __forceinline__ int codes_at() const { return team.row * s.row_pitch; }
  __device__ __forceinline__ int scales_at() const {
    return s.team_rows() * s.row_pitch + team.row * s.scale_words * 4;
  }
  __device__ __forceinline__ ScaleRow scales_in_memory() const {
    return ScaleRow(s.scales, s.scale_index, at);
  }

  // Starts to copy the row to a stage. It is there after copy_async_wait and __syncthreads.
  __device__ __forceinline__ void copy(unsigned char* stage) const {
    if (!exists) return;
    const std::uint8_t* from = s.codes + index * s.code_row_bytes + first_column * s.bits / 8;
    const int bytes = (columns * s.bits + 7) / 8;
    unsigned char* to = stage + codes_at();
    const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
    if (s.piece_bytes == 16) {
      // Rows of packed codes reach up to a whole block, those of 8-bit codes are multiples of 16.
      for (int i = team.rank * 16; i < bytes; i += team.threads() * 16) {
        ptx::copy_async_16(address + i, from + i, 16);
      }
    } else if (s.piece_bytes == 4) {
      for (int i = team.rank * 4; i < bytes; i += team.threads() * 4) {
        ptx::copy_async_4(address + i, from + i);
      }
    } else {
      for (int i = team.rank; i < bytes; i += team.threads()) to[i] = from[i];
    }
    if (s.scale_words == 0) return;
    const ScaleRow row = scales_in_memory();
    const auto scales = static_cast<std::uint32_t>(__cvta_generic_to_shared(stage + scales_at()));
    for (int i = team.rank; i < s.scale_words; i += team.threads()) {
      ptx::copy_async_4(scales + i * 4, row.address(i * 4));
    }
  }

  // The scale byte of a block, counted from the start of the row.
  __device__ __forceinline__ unsigned scale(const unsigned char* stage, std::int64_t block) const {
    return s.scale_words != 0 ? stage[scales_at() + block] : scales_in_memory()[block];
  }

  // The largest E8M0 scale of the row that is not NaN. All lanes of a warp call this, and every
  // warp of a team finds it on its own: that takes less time than waiting for each other.
  __device__ __forceinline__ unsigned largest_scale(const unsigned char* stage) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t blocks = exists ? s.scale_index.blocks : 0;
    unsigned largest = 0;
    if (s.scale_words != 0) {
      const auto* words = reinterpret_cast<const std::uint32_t*>(stage + scales_at());
      std::uint32_t four = 0;
      for (int i = lane; i * 4 < blocks; i += 32) {
        std::uint32_t word = words[i];
        if (blocks - i * 4 < 4) word &= (1u << (8 * static_cast<int>(blocks - i * 4))) - 1;
        four = __vmaxu4(four, word & ~__vcmpeq4(word, E8M0::nan_byte * 0x01010101u));
      }
      largest = max(max(four & 0xFFu, four >> 8 & 0xFFu), max(four >> 16 & 0xFFu, four >> 24));
    } else {
      const ScaleRow row = scales_in_memory();
      for (std::int64_t block = lane; block < blocks; block += 32) {
        const unsigned byte = row[block];
        if (byte != E8M0::nan_byte) largest = max(largest, byte);
      }
    }
    return __reduce_max_sync(0xFFFFFFFFu, largest);
  }
};

}  // namespace mxkern::kernels
