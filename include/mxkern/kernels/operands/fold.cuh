// mxkern/kernels/operands/fold.cuh: block-scaled rows to 8-bit floats under one power of two a row.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/code_unit.cuh"
#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/operands/fold_codes.cuh"
#include "mxkern/kernels/device/row_team.cuh"
#include "mxkern/kernels/device/vector_io.cuh"
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
  template <class Format, bool HasSpread = true>
  __device__ __forceinline__ void finish(std::int64_t row, unsigned largest_scale,
                                         unsigned spread) const {
    exponents[row] =
        static_cast<std::int32_t>(largest_scale) - E8M0::bias - Fold<Format>::base_shift;
    if constexpr (HasSpread) spreads[row] = static_cast<std::uint8_t>(min(spread, 255u));
  }
};

// Thread blocks a multiprocessor: what measured fastest on an H200. More would spill.
template <class S>
inline constexpr int fold_blocks = S::Format::bits == 6 ? 3 : 4;

struct FoldParameters {
  std::int64_t batch, rows, columns;
  const std::uint8_t* codes;
  std::int64_t code_row_bytes;
  const std::uint8_t* scales;
  ScaleIndex scale_index;
  FoldedRows out;
  int log2_team;
  bool scales_in_words;  // see largest_scale
  bool is_whole;         // units are aligned, and end rows
  Follows follows;
  ZeroedCounters counters[2];
};

// The codes that a lane folds at a time: sixteen of 8 bits, or a block of fewer bits, so that it
// loads 16 or 24 bytes.
template <class Format>
using FoldUnit = CodeUnit<Format, Format::bits == 8 ? 2 : 4>;

template <class Format>
__device__ __forceinline__ bool is_zero(const FoldUnit<Format>& unit) {
  Octet any = 0;
#pragma unroll
  for (int i = 0; i < FoldUnit<Format>::octets; ++i) any |= unit.octet(i);
  return octet_is_zero<Format>(any);
}

// A row, or none, for a thread of the team that has it.
template <class S>
struct FoldRow {
  using Format = typename S::Format;
  using Unit = FoldUnit<Format>;
  static constexpr int units_in_block = S::block / Unit::codes;

  const FoldParameters& p;
  const FoldTable<Format>& table;
  RowTeam team;
  const std::uint8_t* codes;
  ScaleRow scales;
  std::uint8_t* out;
  int units;  // 0: there is no row

  // Folds a unit. Returns its distance from the largest scale, 0 where it does not count.
  __device__ __forceinline__ unsigned fold(const Unit& unit, unsigned byte, unsigned largest,
                                           uint4 (&folded)[Unit::octets / 2]) const {
    const bool is_poisoned = byte == E8M0::nan_byte;
    const unsigned distance = largest - byte;
    const BlockFold<Format> block(distance, is_poisoned, table);
#pragma unroll
    for (int i = 0; i < Unit::octets / 2; ++i) {
      const uint2 low = block(unit.octet(2 * i)), high = block(unit.octet(2 * i + 1));
      folded[i] = make_uint4(low.x, low.y, high.x, high.y);
    }
    return is_poisoned || is_zero<Format>(unit) ? 0u : distance;
  }

  __device__ __forceinline__ unsigned find_largest() const {
    return largest_scale(scales, units > 0 ? p.scale_index.blocks : 0, p.scales_in_words);
  }

  // Where a thread is in its row: addresses only move on.
  struct Place {
    const std::uint8_t* from;
    const std::uint8_t* scale;
    std::uint8_t* to;  // of the warp: its lanes store together
    int left;          // units of the row from the warp's first one on
    Unit loaded[team_loads];
    unsigned bytes[team_loads];
  };

  // Asks for the next units. With Full, all lanes have as many as they can hold.
  template <bool Full>
  __device__ __forceinline__ void load(Place& at, int code_step, int scale_step) const {
    const int lane = team.rank % 32;
#pragma unroll
    for (int i = 0; i < team_loads; ++i) {
      if (!Full && i * team.threads() + lane >= at.left) continue;
      at.loaded[i] = Unit::load(at.from + i * code_step);
      at.bytes[i] = at.scale[i * scale_step];
    }
  }

  // Folds what was loaded.
  template <bool Full>
  __device__ __forceinline__ void fold_loaded(const Place& at, int out_step, unsigned largest,
                                              unsigned& spread) const {
    const int lane = team.rank % 32;
#pragma unroll
    for (int i = 0; i < team_loads; ++i) {
      const int count = Full ? 32 : at.left - i * team.threads();
      if (count <= 0) break;
      uint4 folded[Unit::octets / 2];
      const unsigned distance = fold(at.loaded[i], at.bytes[i], largest, folded);
      if (lane < count) spread = max(spread, distance);
      if constexpr (Unit::codes == 32) {
        store_halves(at.to + i * out_step, folded[0], folded[1], count);
      } else if (lane < count) {
        *reinterpret_cast<uint4*>(at.to + i * out_step + lane * Unit::codes) = folded[0];
      }
    }
  }

  // Whole units at aligned addresses. Returns the spread.
  __device__ __forceinline__ unsigned fold_whole(unsigned& largest) const {
    const int threads = team.threads();
    const int lane = team.rank % 32;
    const int code_step = threads * Unit::bytes, out_step = threads * Unit::codes;
    const auto scale_step = static_cast<int>(scales.offset(threads / units_in_block));
    Place at;
    at.from = codes + team.rank * Unit::bytes;
    at.scale = scales.address(team.rank / units_in_block);
    at.to = out + (team.rank - lane) * Unit::codes;
    at.left = units - (team.rank - lane);
    const int full = (team_loads - 1) * threads + 32;
    // The first loads are on their way while the largest scale is found.
    bool is_full = at.left >= full;
    if (is_full) {
      load<true>(at, code_step, scale_step);
    } else {
      load<false>(at, code_step, scale_step);
    }
    largest = find_largest();
    unsigned spread = 0;
#pragma unroll 1
    while (at.left > 0) {
      if (is_full) {
        fold_loaded<true>(at, out_step, largest, spread);
      } else {
        fold_loaded<false>(at, out_step, largest, spread);
      }
      at.from += team_loads * code_step;
      at.scale += team_loads * scale_step;
      at.to += team_loads * out_step;
      at.left -= team_loads * threads;
      is_full = at.left >= full;
      if (is_full) {
        load<true>(at, code_step, scale_step);
      } else if (at.left > 0) {
        load<false>(at, code_step, scale_step);
      }
    }
    return spread;
  }

  // Anything, unit by unit.
  __device__ __forceinline__ unsigned fold_ragged(unsigned& largest) const {
    largest = find_largest();
    unsigned spread = 0;
#pragma unroll 1
    for (int unit = team.rank; unit < units; unit += team.threads()) {
      const std::int64_t start = std::int64_t{unit} * Unit::codes;
      const Unit loaded =
          Unit::load_some(codes + std::int64_t{unit} * Unit::bytes, p.columns - start);
      uint4 folded[Unit::octets / 2];
      const unsigned byte = scales[unit / units_in_block];
      spread = max(spread, fold(loaded, byte, largest, folded));
#pragma unroll
      for (int i = 0; i < Unit::octets / 2; ++i) {
        *reinterpret_cast<uint4*>(out + start + 16 * i) = folded[i];
      }
    }
    return spread;
  }
};

// A row by a team of threads, a unit of codes at a time, after a look at all of its scales.
template <class S>
__global__ void __launch_bounds__(team_threads, fold_blocks<S>)
    fold_kernel(const __grid_constant__ FoldParameters p) {
  using Format = typename S::Format;
  __shared__ FoldTable<Format> table;
  __shared__ unsigned slots[team_threads / 32];
  wait_at_start(p.follows);
  for (const ZeroedCounters& words : p.counters) words.clear();
  table.fill();
  const RowTeam team(p.log2_team);
  const std::int64_t index =
      static_cast<std::int64_t>(blockIdx.x) * (team_threads >> p.log2_team) + team.row;
  const bool exists = index < p.batch * p.rows;
  const TeamRow at(exists ? index : 0, p.rows);
  const FoldRow<S> row = {
      p,
      table,
      team,
      p.codes + (exists ? index : 0) * p.code_row_bytes,
      ScaleRow(p.scales, p.scale_index, at),
      p.out.data + at.batch * p.out.batch_bytes + at.row * p.out.row_bytes,
      exists ? static_cast<int>(ceil_div(p.columns, FoldUnit<Format>::codes)) : 0};
  unsigned largest = 0;
  unsigned spread = p.is_whole ? row.fold_whole(largest) : row.fold_ragged(largest);
  spread = team.max_of(spread, slots);
  if (team.rank == 0 && exists) p.out.finish<Format>(index, largest, spread);
  wait_at_end(p.follows);
}

}  // namespace mxkern::kernels
