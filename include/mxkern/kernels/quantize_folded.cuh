// mxkern/kernels/quantize_folded.cuh: plain rows to 8-bit floats under one power of two a row.
#pragma once

#include <cstdint>

#include "mxkern/kernels/fold.cuh"
#include "mxkern/kernels/quantize_four.cuh"
#include "mxkern/kernels/row_team.cuh"

namespace mxkern::kernels {

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
  bool is_whole;       // every octet of x starts on 16 bytes, and blocks end rows
  bool vector_stores;  // rows of codes start and end on 8 bytes (4 bits an element: on 4)
};

// A team's row. What quantize would write, and what fold would make of it, from one reading of x:
// four octets a thread are kept while the largest scale of the row is found.
template <class S, class T>
struct QuantizeFoldedRow {
  using Format = typename S::Format;
  using Scales = SharedScales<S>;
  using Octets = RawOctet<T>[team_loads];
  static constexpr int lanes = S::block / 8;
  static constexpr int bits = Format::bits;
  static_assert(team_loads == rows_per_thread && Scales::rows == 1);

  const QuantizeFoldedParameters& p;
  const FoldTable<Format>& table;
  RowTeam team;
  const T* x;
  std::uint8_t* out;
  std::uint8_t* codes;   // null: not wanted
  std::uint8_t* scales;  // of the matrix
  std::int64_t row;
  int octets;  // of the row, in whole blocks; 0: there is no row

  __device__ __forceinline__ void load_whole(Octets& raw) const {
#pragma unroll
    for (int i = 0; i < team_loads; ++i) {
      const int octet = team.rank + i * team.threads();
      raw[i] = RawOctet<T>{};
      if (octet < octets) raw[i] = load_octet(x + octet * 8);
    }
  }

  __device__ __forceinline__ void load_ragged(int first, Octets& raw) const {
#pragma unroll
    for (int i = 0; i < team_loads; ++i) {
      const std::int64_t start = std::int64_t{first + i * team.threads()} * 8;
      raw[i] = load_elements(x + start, octets > 0 ? p.columns - start : 0);
    }
  }

  // The scales of four blocks, one a lane. All lanes of a warp call this.
  __device__ __forceinline__ Scales scales_of(const Octets& raw) const {
    std::uint32_t amax[team_loads];
#pragma unroll
    for (int i = 0; i < team_loads; ++i) amax[i] = octet_amax(raw[i]);
    OctetOptions options;
    options.rule = p.rule;
    return Scales(amax, options, {}, SquareScales{});
  }

  __device__ static __forceinline__ unsigned counted(const Scales& scales) {
    return scales.byte[0] == E8M0::nan_byte ? 0u : scales.byte[0];
  }

  // Writes the octets. Returns the largest distance from the row's largest scale among those that
  // count. All lanes of a warp call this.
  __device__ __forceinline__ unsigned write(int first, const Octets& raw, const Scales& found,
                                            unsigned largest) const {
    unsigned spread = 0;
#pragma unroll
    for (int i = 0; i < team_loads; ++i) {
      const int octet = first + i * team.threads();
      const bool inside = octet < octets;
      const float multiplier = found.of_row(i);
      const bool is_poisoned = multiplier < 0.0f;
      // The multiplier is 2^(127 - byte), subnormal for 254.
      const unsigned byte = 2 * E8M0::bias - float32::exponent_field(bits_of(multiplier));
      const std::uint32_t no_words[8] = {};
      const Octet quantized = quantize_octet<S, Rounding::nearest>(
          raw[i], float_of(octet_amax(raw[i])), multiplier, no_words);
      if (codes != nullptr) write_codes(quantized, octet, inside);
      if (!inside) continue;
      const unsigned distance = largest - byte;
      const BlockFold<Format> fold(distance, is_poisoned, table);
      *reinterpret_cast<uint2*>(out + std::int64_t{octet} * 8) = fold(quantized);
      const bool counts = !is_poisoned && !octets_are_zero<Format>(quantized, quantized);
      spread = max(spread, counts ? distance : 0u);
    }
    if (codes != nullptr) {
      const int octet = first + Scales::row(0) * team.threads();
      if (octet < octets) scales[p.scale_index.offset(row, octet / lanes)] = found.byte[0];
    }
    return spread;
  }

  __device__ __forceinline__ void write_codes(Octet quantized, int octet, bool inside) const {
    const std::int64_t start = std::int64_t{octet} * bits;
    if (p.vector_stores) {
      store_whole_codes<bits>(codes, start, quantized, inside);
    } else if (inside) {
      store_codes<bits>(codes, start, p.code_row_bytes, quantized);
    }
  }
};

template <class S, class T>
__global__ void __launch_bounds__(most_team_warps * 32)
    quantize_folded_kernel(const __grid_constant__ QuantizeFoldedParameters p) {
  using Format = typename S::Format;
  using Row = QuantizeFoldedRow<S, T>;
  __shared__ FoldTable<Format> table;
  __shared__ unsigned slots[2][most_team_warps];
  const RowTeam team(p.log2_team);
  const std::int64_t index =
      static_cast<std::int64_t>(blockIdx.x) * (blockDim.x >> p.log2_team) + team.row;
  const bool exists = index < p.batch * p.rows;
  const TeamRow at(exists ? index : 0, p.rows);
  const Row row = {p,
                   table,
                   team,
                   static_cast<const T*>(p.x) + at.batch * p.batch_stride + at.row * p.row_stride,
                   p.out.data + at.batch * p.out.batch_bytes + at.row * p.out.row_bytes,
                   p.codes == nullptr ? nullptr : p.codes + (exists ? index : 0) * p.code_row_bytes,
                   p.scales + at.batch * p.scale_index.size(),
                   at.row,
                   exists ? static_cast<int>(ceil_div(p.columns, S::block)) * Row::lanes : 0};
  // The same for all lanes, whose blocks' lanes exchange what they find.
  const int end = static_cast<int>(ceil_div(p.columns, S::block)) * Row::lanes + team.rank;
  const int step = team_loads << p.log2_team;

  table.fill();
  unsigned largest = 0, spread = 0;
  if (p.is_whole && end - team.rank <= step) {
    typename Row::Octets raw;
    row.load_whole(raw);
    const typename Row::Scales found = row.scales_of(raw);
    largest = team.max_of(Row::counted(found), slots[0]);
    spread = row.write(team.rank, raw, found, largest);
  } else {
#pragma unroll 1
    for (int first = team.rank; first < end; first += step) {
      typename Row::Octets raw;
      row.load_ragged(first, raw);
      largest = max(largest, Row::counted(row.scales_of(raw)));
    }
    largest = team.max_of(largest, slots[0]);
#pragma unroll 1
    for (int first = team.rank; first < end; first += step) {
      typename Row::Octets raw;
      row.load_ragged(first, raw);
      spread = max(spread, row.write(first, raw, row.scales_of(raw), largest));
    }
  }
  spread = team.max_of(spread, slots[1]);
  if (team.rank == 0 && exists) p.out.finish<Format>(index, largest, spread);
}

}  // namespace mxkern::kernels
