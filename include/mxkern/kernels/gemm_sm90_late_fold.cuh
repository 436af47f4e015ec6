// mxkern/kernels/gemm_sm90_late_fold.cuh: rows of an operand folded while the product is under way.
#pragma once

#include <cstdint>

#include "mxkern/kernels/fold_codes.cuh"
#include "mxkern/kernels/gemm_sm90_late.cuh"

namespace mxkern::kernels {

// A warp that folds rows of an operand with 2^log2_group rows in a tile. It asks for the first
// codes of the next row before a row is ready, and the second-level cache for those of the row
// behind that.
struct LateRowFolder {
  static constexpr int unit = 16;          // codes of a lane
  static constexpr int piece = 32 * unit;  // of the warp
  static constexpr int depth = 4;          // pieces on their way
  static constexpr int round = depth * piece;
  static constexpr int chunk = 4096;  // columns whose scales are a word a lane
  static_assert(chunk % round == 0, "a round has one word of scales");

  const LateRows& p;
  int log2_group;
  int own =
      static_cast<int>(threadIdx.x % 32) * unit;  // the first of this lane's columns in a piece

  __device__ __forceinline__ LateRowFolder(const LateRows& rows, int log2_rows)
      : p(rows), log2_group(log2_rows) {
    asm volatile("" : "+r"(own));  // kept in a register, not worked out again
  }

  __device__ __forceinline__ void run() const {
    int row = row_of(take());
    if (row >= p.rows) return;
    std::uint32_t taken = take();
    uint4 loaded[depth];
    const std::uint8_t* from = p.codes + start_of(row);
#pragma unroll
    for (int i = 0; i < depth; ++i) {
      if (i * piece + own < p.columns) loaded[i] = load(from + i * piece);
    }
    std::uint32_t word = scale_word(row, 0);
#pragma unroll 1
    while (true) {
      const int next = row_of(taken);
      make(row, next, loaded, word);
      taken = take();  // the answer arrives while rows are made
      p.publish(row, 1 << log2_group, own == 0);
      if (next >= p.rows) return;
      row = next;
    }
  }

 private:
  static constexpr unsigned everyone = 0xFFFFFFFFu;

  __device__ __forceinline__ std::uint32_t take() const { return p.take(own == 0); }
  __device__ __forceinline__ int row_of(std::uint32_t taken) const {
    return p.first + static_cast<int>(__shfl_sync(everyone, taken, 0));
  }
  // Where this lane's codes begin, from that of the first row on.
  __device__ __forceinline__ std::uint32_t start_of(int row) const {
    return static_cast<std::uint32_t>(row) * static_cast<std::uint32_t>(p.columns) + own;
  }
  __device__ __forceinline__ static uint4 load(const std::uint8_t* from) {
    return __ldcs(reinterpret_cast<const uint4*>(from));
  }

  // About as many rows ahead as there are warps that make them.
  __device__ __forceinline__ void prefetch(int row) const {
    if (row >= p.rows) return;
    const std::uint8_t* line = p.codes + (start_of(row) - own);
#pragma unroll 1
    for (int at = own * 8; at < p.columns; at += chunk) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(line + at));
    }
  }

  // Four scales, where the row has them; else four that count as NaN.
  __device__ __forceinline__ std::uint32_t scale_word(int row, int at) const {
    const int column = at + own * 8;
    if (column >= p.columns) return ~0u;
    const std::uint8_t* scales = p.scales + p.scales_of(row);
    return *reinterpret_cast<const std::uint32_t*>(
        scales + static_cast<std::uint32_t>(column / 128 * p.word_step));
  }

  // `loaded` and `word` are of this row's first columns, and then of the next one's.
  __device__ __forceinline__ void make(int row, int next, uint4 (&loaded)[depth],
                                       std::uint32_t& word) const {
    std::uint32_t pairs = more_than(word);
#pragma unroll 2
    for (int at = chunk; at < p.columns; at += chunk)
      pairs = __vmaxu2(pairs, more_than(scale_word(row, at)));
    const unsigned largest = largest_of_warp(pairs);
    prefetch(row + static_cast<int>(4 * gridDim.x));
    if (own == 0) {
      p.exponents[row] = static_cast<std::int32_t>(largest) - E8M0::bias - Fold<E4M3>::base_shift;
    }
    std::uint32_t offset = start_of(row);
#pragma unroll 1
    for (int at = own; at - own < p.columns; at += round) {
      if (at % chunk == own && at >= chunk) word = scale_word(row, at - own);
      const std::uint32_t words = word;
      std::uint8_t* to = static_cast<std::uint8_t*>(p.out) + offset;
      int ahead = at + round;  // the first of the columns that are asked for
      offset += round;
      if (ahead - own >= p.columns) {
        ahead = 0x7FFFFFFF - round;
        if (next < p.rows) {
          ahead = own;
          offset = start_of(next);
          word = scale_word(next, 0);
        }
      }
      const std::uint8_t* from = p.codes + offset;
#pragma unroll
      for (int i = 0; i < depth; ++i) {
        // The lane that has the word of four scales, and the scale's place in it.
        const std::uint32_t four = __shfl_sync(everyone, words, (at + i * piece) / 128);
        const unsigned byte = four >> (own / 32 % 4 * 8) & 0xFFu;
        if (at + i * piece < p.columns) write(to + i * piece, loaded[i], largest, byte);
        if (ahead + i * piece < p.columns) loaded[i] = load(from + i * piece);
      }
    }
  }

  // Sixteen codes of a block with this scale.
  __device__ __forceinline__ static void write(std::uint8_t* to, const uint4& codes,
                                               unsigned largest, unsigned byte) {
    static_assert(!FoldTable<E4M3>::is_used);
    const FoldTable<E4M3> no_table = {};
    const BlockFold<E4M3> block(largest - byte, byte == E8M0::nan_byte, no_table);
    const auto octet = [](std::uint32_t low, std::uint32_t high) {
      return low | static_cast<Octet>(high) << 32;
    };
    const uint2 low = block(octet(codes.x, codes.y)), high = block(octet(codes.z, codes.w));
    *reinterpret_cast<uint4*>(to) = make_uint4(low.x, low.y, high.x, high.y);
  }
};

}  // namespace mxkern::kernels
