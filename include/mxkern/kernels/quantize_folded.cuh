// mxkern/kernels/quantize_folded.cuh: plain rows to 8-bit floats under one power of two a row.
#pragma once

#include <cstdint>

#include "mxkern/kernels/fold.cuh"
#include "mxkern/kernels/ptx/copy_async.cuh"
#include "mxkern/kernels/quantize_four.cuh"
#include "mxkern/kernels/row_team.cuh"

namespace mxkern::kernels {

// Bytes that a row takes in shared memory with a byte for each of its blocks.
__host__ __device__ constexpr int held_row_bytes(int row_bytes, int block_bytes) {
  return row_bytes + (row_bytes / block_bytes + 15) / 16 * 16;
}

struct QuantizeFoldedParameters {
  std::int64_t batch, rows, columns;
  const void* x;
  std::int64_t batch_stride, row_stride;
  ScaleRule rule;
  FoldedRows out;
  std::uint8_t* codes;  // null: not wanted, and no scales either
  std::int64_t code_row_bytes;
  std::uint8_t* scales;
  ScaleIndex scale_index;
  int log2_team;
  bool is_held;        // rows lie in shared memory: octets of x start on 16 bytes and end rows
  int row_bytes;       // of x in shared memory, where it is held
  bool vector_stores;  // rows of codes start and end on 8 bytes (4 bits an element: on 4)
};

// A team's row. What quantize would write, and what fold would make of it. The row is gone through
// twice, for its scales and for its codes, between which the largest scale has to be known; it is
// read from memory once where it is held in shared memory. A thread only reads what it has copied
// itself, but for the bytes of the scales.
template <class S, class T>
struct QuantizeFoldedRow {
  using Format = typename S::Format;
  static constexpr int lanes = S::block / 8;
  static constexpr int bits = Format::bits;
  static_assert(team_loads == rows_per_thread && SharedScales<S>::rows == 1);

  const QuantizeFoldedParameters& p;
  const FoldTable<Format>& table;
  RowTeam team;
  const T* x;
  unsigned char* held;  // the row in shared memory, then a byte a block
  std::uint8_t* out;
  std::uint8_t* codes;   // null: not wanted
  std::uint8_t* scales;  // of the matrix
  std::int64_t row;
  int octets;  // of the row, in whole blocks; 0: there is no row
  int end;     // as octets, but for rows that are not there as well

  __device__ __forceinline__ T* held_octet(int octet) const {
    return reinterpret_cast<T*>(held) + octet * 8;
  }
  __device__ __forceinline__ unsigned char& held_scale(int block) const {
    return held[p.row_bytes + block];
  }

  __device__ __forceinline__ void copy() const {
    constexpr int pieces = static_cast<int>(sizeof(T)) / 2;
    for (int octet = team.rank; octet < octets; octet += team.threads()) {
      const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(held_octet(octet)));
#pragma unroll
      for (int i = 0; i < pieces; ++i) {
        ptx::copy_async_16(to + 16 * i, x + octet * 8 + i * (8 / pieces), 16);
      }
    }
    ptx::copy_async_commit();
    ptx::copy_async_wait<0>();
  }

  template <bool Held>
  __device__ __forceinline__ RawOctet<T> load(int octet) const {
    RawOctet<T> raw = {};
    if constexpr (Held) {
      if (octet < octets) raw = load_octet(held_octet(octet));
    } else {
      const std::int64_t start = std::int64_t{octet} * 8;
      raw = load_elements(x + start, octets > 0 ? p.columns - start : 0);
    }
    return raw;
  }

  // The scales of the blocks of four octets, one a lane.
  template <bool Held>
  __device__ __forceinline__ SharedScales<S> scales_of(int first) const {
    std::uint32_t amax[team_loads];
#pragma unroll
    for (int i = 0; i < team_loads; ++i) {
      amax[i] = octet_amax(load<Held>(first + i * team.threads()));
    }
    OctetOptions options;
    options.rule = p.rule;
    return SharedScales<S>(amax, options, {}, SquareScales{});
  }

  // Finds all scales of the row. Returns the largest that this thread knows of.
  template <bool Held>
  __device__ __forceinline__ unsigned find_scales() const {
    unsigned largest = 0;
#pragma unroll 1
    for (int first = team.rank; first - team.rank < end; first += team_loads * team.threads()) {
      const unsigned byte = scales_of<Held>(first).byte[0];
      if (byte != E8M0::nan_byte) largest = max(largest, byte);
      const int octet = first + SharedScales<S>::row(0) * team.threads();
      if (octet >= octets) continue;
      if constexpr (Held) held_scale(octet / lanes) = static_cast<std::uint8_t>(byte);
      if (codes != nullptr) {
        scales[p.scale_index.offset(row, octet / lanes)] = static_cast<std::uint8_t>(byte);
      }
    }
    return largest;
  }

  // Writes an octet. Returns its distance from the row's largest scale, 0 where it does not count.
  __device__ __forceinline__ unsigned write(int octet, const RawOctet<T>& raw, unsigned byte,
                                            unsigned largest) const {
    const bool is_poisoned = byte == E8M0::nan_byte;
    const float multiplier =
        is_poisoned ? poisoned_multiplier : E8M0::reciprocal(static_cast<std::uint8_t>(byte));
    const std::uint32_t no_words[8] = {};
    const Octet quantized =
        quantize_octet<S, Rounding::nearest>(raw, float_of(octet_amax(raw)), multiplier, no_words);
    const bool inside = octet < octets;
    if (codes != nullptr) write_codes(quantized, octet, inside);
    if (!inside) return 0;
    const unsigned distance = largest - byte;
    const BlockFold<Format> fold(distance, is_poisoned, table);
    *reinterpret_cast<uint2*>(out + std::int64_t{octet} * 8) = fold(quantized);
    const bool counts = !is_poisoned && !octet_is_zero<Format>(quantized);
    return counts ? distance : 0u;
  }

  __device__ __forceinline__ void write_codes(Octet quantized, int octet, bool inside) const {
    const std::int64_t start = std::int64_t{octet} * bits;
    if (p.vector_stores) {
      store_whole_codes<bits>(codes, start, quantized, inside);
    } else if (inside) {
      store_codes<bits>(codes, start, p.code_row_bytes, quantized);
    }
  }

  // Writes all octets. Returns the spread as far as this thread knows.
  template <bool Held>
  __device__ __forceinline__ unsigned write_all(unsigned largest) const {
    unsigned spread = 0;
    if constexpr (Held) {
#pragma unroll 2
      for (int octet = team.rank; octet - team.rank < end; octet += team.threads()) {
        const unsigned byte = octet < octets ? held_scale(octet / lanes) : 0u;
        spread = max(spread, write(octet, load<Held>(octet), byte, largest));
      }
    } else {
#pragma unroll 1
      for (int octet = team.rank; octet - team.rank < end; octet += team.threads()) {
        const RawOctet<T> raw = load<Held>(octet);
        const std::uint32_t amax = lanes_amax<lanes>(octet_amax(raw));
        const unsigned byte = fast_block_scale<S>(amax, p.rule, {}).byte;
        spread = max(spread, write(octet, raw, byte, largest));
      }
    }
    return spread;
  }
};

template <class S, class T>
__global__ void __launch_bounds__(team_threads, 4)
    quantize_folded_kernel(const __grid_constant__ QuantizeFoldedParameters p) {
  using Format = typename S::Format;
  extern __shared__ __align__(16) unsigned char held[];
  __shared__ FoldTable<Format> table;
  __shared__ unsigned slots[2][team_threads / 32];
  const RowTeam team(p.log2_team);
  const std::int64_t index =
      static_cast<std::int64_t>(blockIdx.x) * (team_threads >> p.log2_team) + team.row;
  const bool exists = index < p.batch * p.rows;
  const TeamRow at(exists ? index : 0, p.rows);
  const int end = static_cast<int>(ceil_div(p.columns, S::block)) * (S::block / 8);
  const QuantizeFoldedRow<S, T> row = {
      p,
      table,
      team,
      static_cast<const T*>(p.x) + at.batch * p.batch_stride + at.row * p.row_stride,
      held + team.row * held_row_bytes(p.row_bytes, S::block * static_cast<int>(sizeof(T))),
      p.out.data + at.batch * p.out.batch_bytes + at.row * p.out.row_bytes,
      p.codes == nullptr ? nullptr : p.codes + (exists ? index : 0) * p.code_row_bytes,
      p.scales + at.batch * p.scale_index.size(),
      at.row,
      exists ? end : 0,
      end};
  if (p.is_held) row.copy();
  table.fill();
  unsigned largest =
      p.is_held ? row.template find_scales<true>() : row.template find_scales<false>();
  // Also: the bytes of the scales are there for all. One warp has them all itself.
  __syncwarp();
  largest = team.max_of(largest, slots[0]);
  unsigned spread =
      p.is_held ? row.template write_all<true>(largest) : row.template write_all<false>(largest);
  spread = team.max_of(spread, slots[1]);
  if (team.rank == 0 && exists) p.out.finish<Format>(index, largest, spread);
}

}  // namespace mxkern::kernels
