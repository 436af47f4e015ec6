// mxkern/kernels/operands/quantize_folded.cuh: plain rows to 8-bit floats under one power of two a
// row.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/operands/fold.cuh"
#include "mxkern/kernels/ptx/copy_async.cuh"
#include "mxkern/kernels/quantize/octet.cuh"
#include "mxkern/kernels/device/row_team.cuh"

namespace mxkern::kernels {

// Bytes that a row takes in shared memory with a byte for each of its blocks.
__host__ __device__ constexpr int held_row_bytes(int row_bytes, int block_bytes) {
  return row_bytes + (row_bytes / block_bytes + 15) / 16 * 16;
}

struct QuantizeFoldedParameters {
  std::int64_t batch, rows, columns;
  const void* x;
  std::int64_t batch_stride, row_stride;
  E8M0Rule rule;
  FoldedRows out;
  std::uint8_t* codes;  // null: not wanted, and no scales either
  std::int64_t code_row_bytes;
  std::uint8_t* scales;
  ScaleIndex scale_index;
  int log2_team;
  bool is_held;        // rows lie in shared memory: they start on 16 bytes and end with a block
  int row_bytes;       // of x in shared memory, where it is held
  bool vector_stores;  // sixteen codes start on 16, 4 or 8 bytes (8, 6 or 4 bits), and end rows
};

// A team's row. What quantize would write, and what fold would make of it. The row is gone through
// twice, a block a thread for its scales, then half a block a thread for its codes: between the two
// the largest scale has to be known. Where it is held in shared memory, it is read from memory
// once.
template <class S, class T>
struct QuantizeFoldedRow {
  using Format = typename S::Format;
  static constexpr int bits = Format::bits;
  static constexpr int octets_in_block = S::block / 8;
  static constexpr int block_bytes = S::block * static_cast<int>(sizeof(T));

  const QuantizeFoldedParameters& p;
  const FoldTable<Format>& table;
  RowTeam team;
  const T* x;
  unsigned char* held;  // the row in shared memory, then a byte a block
  std::uint8_t* out;
  std::uint8_t* codes;   // null: not wanted
  std::uint8_t* scales;  // of the matrix
  std::int64_t row;
  int blocks;  // 0: there is no row

  // Starts to copy the row to shared memory, and waits for this thread's part of it.
  __device__ __forceinline__ void copy() const {
    const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(held));
    const auto* from = reinterpret_cast<const unsigned char*>(x);
    const int bytes = blocks > 0 ? p.row_bytes : 0;
    const int step = team.threads() * 16;
#pragma unroll 4
    for (int at = team.rank * 16; at < bytes; at += step)
      ptx::copy_async_16(to + at, from + at, 16);
    ptx::copy_async_commit();
    ptx::copy_async_wait<0>();
  }

  template <bool Held>
  __device__ __forceinline__ RawOctet<T> load(int octet) const {
    if constexpr (Held) return load_octet(reinterpret_cast<const T*>(held) + octet * 8);
    const std::int64_t start = std::int64_t{octet} * 8;
    return load_elements(x + start, p.columns - start);
  }

  template <bool Held>
  __device__ __forceinline__ unsigned scale_of(int block) const {
    RawOctet<T> largest = {};
#pragma unroll
    for (int i = 0; i < octets_in_block; ++i) {
      // Lanes that read at the same time start at different octets, which lie on different banks.
      const int turn =
          sizeof(T) == 4 ? static_cast<int>(threadIdx.x) : static_cast<int>(threadIdx.x) / 2;
      const int at = Held ? (i + turn) % octets_in_block : i;
      const RawOctet<T> raw = load<Held>(block * octets_in_block + at);
#pragma unroll
      for (int k = 0; k < RawOctet<T>::words; ++k) {
        if constexpr (sizeof(T) == 4) {
          largest.word[k] = max(largest.word[k], raw.word[k] & float32::magnitude_mask);
        } else {
          largest.word[k] = __vmaxu2(largest.word[k], raw.word[k] & 0x7FFF7FFFu);
        }
      }
    }
    return BlockScaler<S>{p.rule}(octet_amax(largest)).byte;
  }

  // Finds all scales of the row. Returns the largest that this thread knows of.
  template <bool Held>
  __device__ __forceinline__ unsigned find_scales() const {
    unsigned largest = 0;
#pragma unroll 1
    for (int block = team.rank; block < blocks; block += team.threads()) {
      const unsigned byte = scale_of<Held>(block);
      if (byte != E8M0::nan_byte) largest = max(largest, byte);
      if constexpr (Held) held[p.row_bytes + block] = static_cast<unsigned char>(byte);
      if (codes != nullptr) {
        scales[p.scale_index.offset(row, block)] = static_cast<std::uint8_t>(byte);
      }
    }
    return largest;
  }

  // Writes half a block. Returns its distance from the row's largest scale, 0 where it does not
  // count.
  template <bool Held>
  __device__ __forceinline__ unsigned write(int half, unsigned byte, unsigned largest) const {
    const bool is_poisoned = byte == E8M0::nan_byte;
    const float multiplier =
        is_poisoned ? poisoned_multiplier : E8M0::reciprocal(static_cast<std::uint8_t>(byte));
    const unsigned distance = largest - byte;
    const BlockFold<Format> fold(distance, is_poisoned, table);
    Octet quantized[2];
    uint2 folded[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const RawOctet<T> raw = load<Held>(half * 2 + i);
      const Philox4 no_words = {};
      const bool saturate =
          p.rule.saturates && block_saturates<S, Rounding::nearest>(octet_amax(raw), multiplier);
      quantized[i] = quantize_octet<S, Rounding::nearest>(raw, multiplier, saturate, no_words);
      folded[i] = fold(quantized[i]);
    }
    *reinterpret_cast<uint4*>(out + std::int64_t{half} * 16) =
        make_uint4(folded[0].x, folded[0].y, folded[1].x, folded[1].y);
    if (codes != nullptr) write_codes(half, quantized[0], quantized[1]);
    return is_poisoned || octet_is_zero<Format>(quantized[0] | quantized[1]) ? 0u : distance;
  }

  __device__ __forceinline__ void write_codes(int half, Octet low, Octet high) const {
    const std::int64_t start = std::int64_t{half} * 2 * bits;
    if (!p.vector_stores) {
      store_codes<bits>(codes, start, p.code_row_bytes, low);
      store_codes<bits>(codes, start + bits, p.code_row_bytes, high);
      return;
    }
    const auto word = [](Octet octet, int shift) {
      return static_cast<std::uint32_t>(octet >> shift);
    };
    if constexpr (bits == 8) {
      *reinterpret_cast<uint4*>(codes + start) =
          make_uint4(word(low, 0), word(low, 32), word(high, 0), word(high, 32));
    } else if constexpr (bits == 6) {
      auto* words = reinterpret_cast<std::uint32_t*>(codes + start);
      words[0] = word(low, 0);
      words[1] = word(low, 32) | word(high, 0) << 16;
      words[2] = word(high, 16);
    } else {
      *reinterpret_cast<uint2*>(codes + start) = make_uint2(word(low, 0), word(high, 0));
    }
  }

  // Writes everything. Returns the spread as far as this thread knows.
  template <bool Held>
  __device__ __forceinline__ unsigned write_all(unsigned largest) const {
    unsigned spread = 0;
    if constexpr (Held) {
#pragma unroll 2
      for (int half = team.rank; half < 2 * blocks; half += team.threads()) {
        spread = max(spread, write<Held>(half, held[p.row_bytes + half / 2], largest));
      }
    } else {
#pragma unroll 1
      for (int half = team.rank; half < 2 * blocks; half += team.threads()) {
        spread = max(spread, write<Held>(half, scale_of<Held>(half / 2), largest));
      }
    }
    return spread;
  }
};

inline constexpr int quantize_folded_blocks = 5;  // a multiprocessor

template <class S, class T>
__global__ void __launch_bounds__(team_threads, quantize_folded_blocks)
    quantize_folded_kernel(const __grid_constant__ QuantizeFoldedParameters p) {
  using Format = typename S::Format;
  using Row = QuantizeFoldedRow<S, T>;
  extern __shared__ __align__(16) unsigned char held[];
  __shared__ FoldTable<Format> table;
  __shared__ unsigned slots[2][team_threads / 32];
  wait_for_kernels_ahead();
  let_dependents_start();
  const RowTeam team(p.log2_team);
  const std::int64_t index =
      static_cast<std::int64_t>(blockIdx.x) * (team_threads >> p.log2_team) + team.row;
  const bool exists = index < p.batch * p.rows;
  const TeamRow at(exists ? index : 0, p.rows);
  const Row row = {p,
                   table,
                   team,
                   static_cast<const T*>(p.x) + at.batch * p.batch_stride + at.row * p.row_stride,
                   held + team.row * held_row_bytes(p.row_bytes, Row::block_bytes),
                   p.out.data + at.batch * p.out.batch_bytes + at.row * p.out.row_bytes,
                   p.codes == nullptr ? nullptr : p.codes + (exists ? index : 0) * p.code_row_bytes,
                   p.scales + at.batch * p.scale_index.size(),
                   at.row,
                   exists ? static_cast<int>(ceil_div(p.columns, S::block)) : 0};
  if (p.is_held) row.copy();
  table.fill();
  // The row is there for all, and then the bytes of its scales.
  __syncthreads();
  unsigned largest =
      p.is_held ? row.template find_scales<true>() : row.template find_scales<false>();
  __syncwarp();
  largest = team.max_of(largest, slots[0]);
  unsigned spread =
      p.is_held ? row.template write_all<true>(largest) : row.template write_all<false>(largest);
  spread = team.max_of(spread, slots[1]);
  if (team.rank == 0 && exists) p.out.finish<Format>(index, largest, spread);
}

}  // namespace mxkern::kernels
