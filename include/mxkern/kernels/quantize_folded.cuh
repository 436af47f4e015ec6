// mxkern/kernels/quantize_folded.cuh: plain rows to 8-bit floats under one power of two a row.
#pragma once

#include <cstdint>

#include "mxkern/kernels/fold.cuh"
#include "mxkern/kernels/row_team.cuh"
#include "mxkern/kernels/quantize_octet.cuh"

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
  bool vector_loads;   // every octet of x starts on 16 bytes
  bool vector_stores;  // rows of codes start and end on 8 bytes (4 bits an element: on 4)
};

// A team's row. What quantize would write, and what fold would make of it, from one reading of x:
// as many octets as a thread holds are kept while the largest scale of the row is found.
template <class S, class T>
struct QuantizeFoldedRow {
  using Format = typename S::Format;
  static constexpr int lanes = S::block / 8;
  static constexpr int bits = Format::bits;

  const QuantizeFoldedParameters& p;
  const FoldTable<Format>& table;
  const T* x;
  std::uint8_t* out;
  std::uint8_t* codes;   // null: not wanted
  std::uint8_t* scales;  // of the matrix
  std::int64_t row;
  std::int64_t octets;  // of the row, in whole blocks
  bool exists;

  __device__ __forceinline__ RawOctet<T> load(std::int64_t octet) const {
    const std::int64_t count = exists ? p.columns - octet * 8 : 0;
    return load_guarded(x + octet * 8, count, p.vector_loads);
  }

  // The scale byte of the block that an octet belongs to. All lanes of a warp call this.
  __device__ __forceinline__ unsigned scale(const RawOctet<T>& raw) const {
    const std::uint32_t amax = lanes_amax<lanes>(octet_amax(raw));
    return fast_block_scale<S>(amax, p.rule, {}).byte;
  }

  // Writes the octet. Returns its distance from the largest scale, 0 where it does not count. All
  // lanes of a warp call this.
  __device__ __forceinline__ unsigned write(const RawOctet<T>& raw, unsigned byte,
                                            std::int64_t octet, unsigned largest) const {
    const bool is_poisoned = byte == E8M0::nan_byte;
    const float multiplier =
        is_poisoned ? poisoned_multiplier : E8M0::reciprocal(static_cast<std::uint8_t>(byte));
    const std::uint32_t no_words[8] = {};
    const Octet quantized =
        quantize_octet<S, Rounding::nearest>(raw, float_of(octet_amax(raw)), multiplier, no_words);
    const bool inside = exists && octet < octets;
    if (codes != nullptr) write_codes(quantized, byte, octet, inside);
    if (!inside) return 0;
    const unsigned distance = largest - byte;
    const BlockFold<Format> fold(distance, is_poisoned, table);
    *reinterpret_cast<uint2*>(out + octet * 8) = fold(quantized);
    return is_poisoned || octet_is_zero<Format>(quantized) ? 0 : distance;
  }

  __device__ __forceinline__ void write_codes(Octet quantized, unsigned byte, std::int64_t octet,
                                              bool inside) const {
    if (p.vector_stores) {
      store_whole_codes<bits>(codes, octet * bits, quantized, inside);
    } else if (inside) {
      store_codes<bits>(codes, octet * bits, p.code_row_bytes, quantized);
    }
    if (inside && octet % lanes == 0) {
      scales[p.scale_index.offset(row, octet / lanes)] = static_cast<std::uint8_t>(byte);
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
                   static_cast<const T*>(p.x) + at.batch * p.batch_stride + at.row * p.row_stride,
                   p.out.data + at.batch * p.out.batch_bytes + at.row * p.out.row_bytes,
                   p.codes == nullptr ? nullptr : p.codes + (exists ? index : 0) * p.code_row_bytes,
                   p.scales + at.batch * p.scale_index.size(),
                   at.row,
                   ceil_div(p.columns, S::block) * Row::lanes,
                   exists};
  const std::int64_t step = std::int64_t{team_loads} << p.log2_team;
  const std::int64_t end = round_up(row.octets, step);  // the same for all lanes
  const auto octet_at = [&](std::int64_t first, int i) {
    return first + team.rank + (i << p.log2_team);
  };

  RawOctet<T> raw[team_loads];
  unsigned bytes[team_loads];
#pragma unroll
  for (int i = 0; i < team_loads; ++i) raw[i] = row.load(octet_at(0, i));
  unsigned largest = 0;
#pragma unroll
  for (int i = 0; i < team_loads; ++i) {
    bytes[i] = row.scale(raw[i]);
    if (bytes[i] != E8M0::nan_byte) largest = max(largest, bytes[i]);
  }
  for (std::int64_t octet = octet_at(step, 0); octet - team.rank < end; octet += team.threads()) {
    const unsigned byte = row.scale(row.load(octet));
    if (byte != E8M0::nan_byte) largest = max(largest, byte);
  }
  table.fill();
  largest = team.max_of(largest, slots[0]);

  unsigned spread = 0;
#pragma unroll
  for (int i = 0; i < team_loads; ++i) {
    spread = max(spread, row.write(raw[i], bytes[i], octet_at(0, i), largest));
  }
  for (std::int64_t octet = octet_at(step, 0); octet - team.rank < end; octet += team.threads()) {
    const RawOctet<T> again = row.load(octet);
    spread = max(spread, row.write(again, row.scale(again), octet, largest));
  }
  spread = team.max_of(spread, slots[1]);
  if (team.rank == 0 && exists) p.out.finish<Format>(index, largest, spread);
}

}  // namespace mxkern::kernels
