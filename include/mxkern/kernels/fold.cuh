// mxkern/kernels/fold.cuh: block-scaled rows to 8-bit floats under one power of two a row.
#pragma once

#include <cstdint>

#include "mxkern/kernels/code_stream.cuh"
#include "mxkern/kernels/fold_codes.cuh"
#include "mxkern/numerics/scheme.h"

namespace mxkern::kernels {

// Where folded rows go. Rows start on 16 bytes and have room for whole 16 bytes.
struct FoldedRows {
  std::uint8_t* data;
  std::int64_t row_bytes;
  std::int64_t batch_bytes;
  std::int32_t* exponents;
  std::uint8_t* spreads;

  // The exponent and the spread of a row, by one of its threads.
  template <class Format>
  __device__ __forceinline__ void finish(std::int64_t row, unsigned largest_scale,
                                         unsigned spread) const {
    exponents[row] =
        static_cast<std::int32_t>(largest_scale) - E8M0::bias - Fold<Format>::base_shift;
    spreads[row] = static_cast<std::uint8_t>(min(spread, 255u));
  }
};

struct FoldParameters {
  CodeStream stream;
  FoldedRows out;
};

// Sixteen packed codes from shared memory.
template <class Format>
struct Sixteen {
  static constexpr int bytes = 2 * Format::bits;
  Octet octets[2];

  __device__ __forceinline__ static Sixteen load(const unsigned char* p) {
    if constexpr (Format::bits == 8) {
      const uint4 v = *reinterpret_cast<const uint4*>(p);
      return {{v.x | static_cast<Octet>(v.y) << 32, v.z | static_cast<Octet>(v.w) << 32}};
    } else if constexpr (Format::bits == 6) {
      const auto* words = reinterpret_cast<const std::uint32_t*>(p);
      const std::uint32_t middle = words[1];
      return {{words[0] | static_cast<Octet>(middle & 0xFFFFu) << 32,
               middle >> 16 | static_cast<Octet>(words[2]) << 16}};
    } else {
      const uint2 v = *reinterpret_cast<const uint2*>(p);
      return {{v.x, v.y}};
    }
  }

  // Makes zeros of all but the first `count` codes.
  __device__ __forceinline__ void keep(int count) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int left = min(max(count - 8 * i, 0), 8);
      octets[i] &= left == 8 ? ~Octet{0} : (Octet{1} << left * Format::bits) - 1;
    }
  }
};

// What is written about a row once all of its codes are.
struct FoldedRow {
  std::int64_t index = 0;
  bool exists = false;
  unsigned largest = 0;
};

// Sixteen codes of a row at a time, from stages of shared memory that are filled ahead.
template <class S>
__global__ void __launch_bounds__(team_threads, stream_blocks)
    fold_kernel(const __grid_constant__ FoldParameters p) {
  using Format = typename S::Format;
  extern __shared__ __align__(16) unsigned char ring[];
  __shared__ FoldTable<Format> table;
  __shared__ unsigned spreads[2][team_threads / 32];
  const CodeStream& s = p.stream;
  if (threadIdx.x < team_threads / 16) spreads[threadIdx.x % 2][threadIdx.x / 2] = 0;
  table.fill();
  StreamPosition here{blockIdx.x}, ahead{blockIdx.x};
  const auto start_copy = [&](int stage) {
    if (ahead.group < s.groups) StreamRow(s, ahead).copy(ring + stage * s.stage_bytes);
    ptx::copy_async_commit();
    ahead.advance(s.chunks);
  };
#pragma unroll 1
  for (int stage = 0; stage < stream_stages - 1; ++stage) start_copy(stage);

  FoldedRow before;
  int parity = 0;
  const auto finish_row = [&](int which, const RowTeam& team) {
    if (team.rank != 0 || !before.exists) return;
    p.out.finish<Format>(before.index, before.largest, spreads[which][team.row]);
    spreads[which][team.row] = 0;
  };
#pragma unroll 1
  for (int stage = 0; here.group < s.groups; stage = (stage + 1) % stream_stages) {
    ptx::copy_async_wait<stream_stages - 2>();
    // Also: everybody is done with the stage that is filled next, and with the row before.
    __syncthreads();
    const StreamRow row(s, here);
    if (here.chunk == 0) finish_row(parity ^ 1, row.team);
    start_copy((stage + stream_stages - 1) % stream_stages);
    const unsigned char* memory = ring + stage * s.stage_bytes;
    const unsigned largest = row.largest_scale(memory);
    const std::int64_t first_block = row.first_column / S::block;
    std::uint8_t* out = p.out.data + row.at.batch * p.out.batch_bytes +
                        row.at.row * p.out.row_bytes + row.first_column;
    unsigned spread = 0;
#pragma unroll 2
    for (int unit = row.team.rank; unit * 16 < row.columns; unit += row.team.threads()) {
      auto codes = Sixteen<Format>::load(memory + row.codes_at() + unit * Sixteen<Format>::bytes);
      if (row.columns - unit * 16 < 16) codes.keep(row.columns - unit * 16);
      const unsigned byte = row.scale(memory, first_block + unit * 16 / S::block);
      const bool is_poisoned = byte == E8M0::nan_byte;
      const unsigned distance = largest - byte;
      const BlockFold<Format> fold(distance, is_poisoned, table);
      const uint2 low = fold(codes.octets[0]), high = fold(codes.octets[1]);
      const bool is_zero =
          octet_is_zero<Format>(codes.octets[0]) && octet_is_zero<Format>(codes.octets[1]);
      if (!is_poisoned && !is_zero) spread = max(spread, distance);
      *reinterpret_cast<uint4*>(out + unit * 16) = make_uint4(low.x, low.y, high.x, high.y);
    }
    spread = __reduce_max_sync(0xFFFFFFFFu, spread);
    if (threadIdx.x % 32 == 0 && spread != 0) atomicMax(&spreads[parity][row.team.row], spread);
    before = {row.index, row.exists, largest};
    if (here.chunk == s.chunks - 1) parity ^= 1;
    here.advance(s.chunks);
  }
  __syncthreads();
  finish_row(parity ^ 1, RowTeam(s.log2_team));
}

}  // namespace mxkern::kernels
