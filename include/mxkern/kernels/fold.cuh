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

inline constexpr int fold_blocks = 4;  // of a multiprocessor

struct FoldParameters {
  std::int64_t batch, rows, columns;
  const std::uint8_t* codes;
  std::int64_t code_row_bytes;
  const std::uint8_t* scales;
  ScaleIndex scale_index;
  FoldedRows out;
  int log2_team;
  bool scales_in_words;  // see largest_scale
  bool is_whole;         // sixteen codes start on 16, 4 or 8 bytes (8, 6 or 4 bits), and end rows
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

// A row, or none, for a thread of the team that has it.
template <class S>
struct FoldRow {
  using Format = typename S::Format;
  using Codes = Sixteen<Format>;
  static constexpr int units_in_block = S::block / 16;

  const FoldParameters& p;
  const FoldTable<Format>& table;
  RowTeam team;
  const std::uint8_t* codes;
  ScaleRow scales;
  std::uint8_t* out;
  int units;  // of sixteen codes; 0: there is no row

  // Writes a unit. Returns its distance from the largest scale, 0 where it does not count.
  __device__ __forceinline__ unsigned write(const Codes& loaded, unsigned byte, unsigned largest,
                                            std::uint8_t* to) const {
    const bool is_poisoned = byte == E8M0::nan_byte;
    const unsigned distance = largest - byte;
    const BlockFold<Format> fold(distance, is_poisoned, table);
    const uint2 low = fold(loaded.octets[0]), high = fold(loaded.octets[1]);
    *reinterpret_cast<uint4*>(to) = make_uint4(low.x, low.y, high.x, high.y);
    const bool counts =
        !is_poisoned && !octets_are_zero<Format>(loaded.octets[0], loaded.octets[1]);
    return counts ? distance : 0u;
  }

  __device__ __forceinline__ unsigned find_largest() const {
    return largest_scale(scales, units > 0 ? p.scale_index.blocks : 0, p.scales_in_words);
  }

  // Whole units at aligned addresses, all of which only move on. Returns the spread.
  __device__ __forceinline__ unsigned fold_whole(unsigned& largest) const {
    const int threads = team.threads();
    const int code_step = threads * Codes::bytes, out_step = threads * 16;
    const auto scale_step = static_cast<int>(scales.offset(threads / units_in_block));
    const std::uint8_t* from = codes + team.rank * Codes::bytes;
    const std::uint8_t* scale = scales.address(team.rank / units_in_block);
    std::uint8_t* to = out + team.rank * 16;
    Codes loaded[team_loads];
    unsigned bytes[team_loads];
    const auto load = [&](int left) {
#pragma unroll
      for (int i = 0; i < team_loads; ++i) {
        if (i * threads >= left) continue;
        loaded[i] = Codes::load(from + i * code_step);
        bytes[i] = scale[i * scale_step];
      }
    };
    int left = units - team.rank;
    // The first loads are on their way while the largest scale is found.
    load(left);
    largest = find_largest();
    unsigned spread = 0;
#pragma unroll 1
    while (left > 0) {
#pragma unroll
      for (int i = 0; i < team_loads; ++i) {
        if (i * threads >= left) continue;
        spread = max(spread, write(loaded[i], bytes[i], largest, to + i * out_step));
      }
      from += team_loads * code_step;
      scale += team_loads * scale_step;
      to += team_loads * out_step;
      left -= team_loads * threads;
      load(left);
    }
    return spread;
  }

  // Anything, unit by unit.
  __device__ __forceinline__ unsigned fold_ragged(unsigned& largest) const {
    largest = find_largest();
    unsigned spread = 0;
#pragma unroll 1
    for (int unit = team.rank; unit < units; unit += team.threads()) {
      const Codes loaded = Codes::load_some(codes + std::int64_t{unit} * Codes::bytes,
                                            p.columns - std::int64_t{unit} * 16);
      spread = max(spread, write(loaded, scales[unit / units_in_block], largest,
                                 out + std::int64_t{unit} * 16));
    }
    return spread;
  }
};

// A row by a team of threads, sixteen codes at a time, after a look at all of its scales.
template <class S>
__global__ void __launch_bounds__(team_threads, fold_blocks)
    fold_kernel(const __grid_constant__ FoldParameters p) {
  using Format = typename S::Format;
  __shared__ FoldTable<Format> table;
  __shared__ unsigned slots[team_threads / 32];
  table.fill();
  const RowTeam team(p.log2_team);
  const std::int64_t index =
      static_cast<std::int64_t>(blockIdx.x) * (team_threads >> p.log2_team) + team.row;
  const bool exists = index < p.batch * p.rows;
  const TeamRow at(exists ? index : 0, p.rows);
  const FoldRow<S> row = {p,
                          table,
                          team,
                          p.codes + (exists ? index : 0) * p.code_row_bytes,
                          ScaleRow(p.scales, p.scale_index, at),
                          p.out.data + at.batch * p.out.batch_bytes + at.row * p.out.row_bytes,
                          exists ? static_cast<int>(ceil_div(p.columns, 16)) : 0};
  unsigned largest = 0;
  unsigned spread = p.is_whole ? row.fold_whole(largest) : row.fold_ragged(largest);
  spread = team.max_of(spread, slots);
  if (team.rank == 0 && exists) p.out.finish<Format>(index, largest, spread);
}

}  // namespace mxkern::kernels
