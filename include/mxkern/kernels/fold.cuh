// mxkern/kernels/fold.cuh: block-scaled rows to 8-bit floats under one power of two a row.
#pragma once

#include <cstdint>

#include "mxkern/kernels/fold_codes.cuh"
#include "mxkern/kernels/row_team.cuh"
#include "mxkern/kernels/vector_io.cuh"
#include "mxkern/numerics/scheme.h"
#include "mxkern/tensor/scale_layout.h"

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
  std::int64_t batch, rows, columns;
  const std::uint8_t* codes;
  std::int64_t code_row_bytes;
  const std::uint8_t* scales;
  ScaleIndex scale_index;
  FoldedRows out;
  int log2_team;
  bool vector_loads;  // sixteen codes start on 16, 4 or 8 bytes (8, 6 or 4 bits an element)
};

// Sixteen packed codes.
template <class Format>
struct Sixteen {
  static constexpr int bytes = 2 * Format::bits;
  Octet octets[2];

  __device__ __forceinline__ static Sixteen load(const std::uint8_t* p) {
    if constexpr (Format::bits == 8) {
      const uint4 v = __ldcs(reinterpret_cast<const uint4*>(p));
      return {{v.x | static_cast<Octet>(v.y) << 32, v.z | static_cast<Octet>(v.w) << 32}};
    } else if constexpr (Format::bits == 6) {
      const auto* words = reinterpret_cast<const std::uint32_t*>(p);
      const std::uint32_t middle = words[1];
      return {{words[0] | static_cast<Octet>(middle & 0xFFFFu) << 32,
               middle >> 16 | static_cast<Octet>(words[2]) << 16}};
    } else {
      const uint2 v = __ldcs(reinterpret_cast<const uint2*>(p));
      return {{v.x, v.y}};
    }
  }

  // The first `count` codes from any address, zeros behind them.
  __device__ static Sixteen load_some(const std::uint8_t* p, std::int64_t count) {
    Sixteen sixteen = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int64_t left = count - 8 * i;
      if (left <= 0) break;
      const int codes = left < 8 ? static_cast<int>(left) : 8;
      const Octet octet =
          load_codes<Format::bits>(p + Format::bits * i, ceil_div(codes * Format::bits, 8));
      const Octet kept = codes == 8 ? ~Octet{0} : (Octet{1} << codes * Format::bits) - 1;
      sixteen.octets[i] = octet & kept;
    }
    return sixteen;
  }
};

// A row by a team of threads, sixteen codes at a time, after a look at all of its scales.
template <class S>
__global__ void __launch_bounds__(team_threads)
    fold_kernel(const __grid_constant__ FoldParameters p) {
  using Format = typename S::Format;
  constexpr int units_in_block = S::block / 16;
  constexpr int warps = team_threads / 32;
  __shared__ FoldTable<Format> table;
  __shared__ unsigned slots[2][warps];
  const RowTeam team(p.log2_team);
  const std::int64_t total = p.batch * p.rows;
  const std::int64_t index =
      (static_cast<std::int64_t>(blockIdx.x) << (8 - p.log2_team)) + team.row;
  // Threads without a row work on no units of the last one.
  const std::int64_t units = index < total ? ceil_div(p.columns, 16) : 0;
  const TeamRow at(index < total ? index : total - 1, p.rows);
  const ScaleRow scales(p.scales, p.scale_index, at);
  const std::uint8_t* codes = p.codes + (at.batch * p.rows + at.row) * p.code_row_bytes;
  const std::int64_t whole_units = p.vector_loads ? p.columns / 16 : 0;
  const auto load = [&](std::int64_t unit) {
    const std::uint8_t* from = codes + unit * Sixteen<Format>::bytes;
    return unit < whole_units ? Sixteen<Format>::load(from)
                              : Sixteen<Format>::load_some(from, p.columns - unit * 16);
  };

  // The first loads are on their way while the largest scale is found.
  Sixteen<Format> loaded[team_loads] = {};
  unsigned bytes[team_loads];
  unsigned largest = 0;
#pragma unroll
  for (int i = 0; i < team_loads; ++i) {
    const std::int64_t unit = team.rank + (i << team.log2_threads);
    bytes[i] = E8M0::nan_byte;
    if (unit < units) {
      loaded[i] = load(unit);
      bytes[i] = scales[unit / units_in_block];
    }
  }
#pragma unroll
  for (int i = 0; i < team_loads; ++i) {
    if (bytes[i] != E8M0::nan_byte) largest = max(largest, bytes[i]);
  }
  const std::int64_t step = std::int64_t{team_loads} << team.log2_threads;
  for (std::int64_t unit = team.rank + step; unit < units; unit += team.threads()) {
    const unsigned byte = scales[unit / units_in_block];
    if (byte != E8M0::nan_byte) largest = max(largest, byte);
  }
  table.fill();
  largest = team.max_of(largest, slots[0]);

  unsigned spread = 0;
  std::uint8_t* out = p.out.data + at.batch * p.out.batch_bytes + at.row * p.out.row_bytes;
  for (std::int64_t first = team.rank; first < units;) {
#pragma unroll
    for (int i = 0; i < team_loads; ++i) {
      const std::int64_t unit = first + (i << team.log2_threads);
      if (unit >= units) break;
      const bool is_poisoned = bytes[i] == E8M0::nan_byte;
      const unsigned distance = largest - bytes[i];
      const BlockFold<Format> fold(distance, is_poisoned, table);
      const Octet* octets = loaded[i].octets;
      const uint2 low = fold(octets[0]), high = fold(octets[1]);
      const bool is_zero = octet_is_zero<Format>(octets[0]) && octet_is_zero<Format>(octets[1]);
      if (!is_poisoned && !is_zero) spread = max(spread, distance);
      *reinterpret_cast<uint4*>(out + unit * 16) = make_uint4(low.x, low.y, high.x, high.y);
    }
    first += step;
#pragma unroll
    for (int i = 0; i < team_loads; ++i) {
      const std::int64_t unit = first + (i << team.log2_threads);
      if (unit >= units) break;
      loaded[i] = load(unit);
      bytes[i] = scales[unit / units_in_block];
    }
  }
  spread = team.max_of(spread, slots[1]);
  if (team.rank == 0 && index < total) p.out.finish<Format>(index, largest, spread);
}

}  // namespace mxkern::kernels
