// mxkern/kernels/gemm/hopper/overlap_fold.cuh: rows of an operand folded while the product is under
// way.
#pragma once

#include <cstdint>

#include "mxkern/kernels/operands/fold_codes.cuh"
#include "mxkern/kernels/gemm/hopper/overlap.cuh"
#include "mxkern/kernels/device/row_scale_words.cuh"
#include "mxkern/numerics/scale_format.h"

namespace mxkern::kernels {

// A warp that folds what is late of an operand with 2^log2_group rows in a tile: the last columns
// of the first rows, and then the rows behind them. There are few registers, and beside tensor
// cores an instruction of another warp costs them a clock: so a lane has four pieces of 16 codes on
// their way, asks for the next ones as it writes, and keeps addresses that only move on.
template <int WordStep>
struct LateRowFolder {
  static constexpr int unit = 16;          // codes of a lane
  static constexpr int piece = 32 * unit;  // of the warp
  static constexpr int depth = 4;          // pieces on their way
  static constexpr int round = depth * piece;
  static constexpr int chunk = 4096;  // columns whose scales are a word a lane
  static_assert(round == LateRows::stretch);

  const LateRows& p;
  int log2_group;
  int own = static_cast<int>(threadIdx.x % 32) * unit;  // this lane's first column in a piece
  // On their way: codes and the scales of their blocks, where those behind them lie, and what tells
  // the largest scale of the row.
  uint4 codes[depth] = {};
  unsigned bytes[depth] = {};
  const std::uint8_t* from = nullptr;
  const std::uint8_t* scale = nullptr;
  std::uint32_t word = 0;

  __device__ __forceinline__ LateRowFolder(const LateRows& rows, int log2_rows)
      : p(rows), log2_group(log2_rows) {
    asm volatile("" : "+r"(own));  // kept in a register, not worked out again
  }

  __device__ __forceinline__ void run() {
    std::uint32_t index = p.first_piece(of_warp(take()));
    if (index >= p.pieces()) return;
    std::uint32_t taken = take();
    int left = begin(p.piece(index));
#pragma unroll
    for (int i = 0; i < depth; ++i) {
      if (i * piece < left) load(i);
    }
#pragma unroll 1
    while (true) {
      const std::uint32_t first = index, end = p.end_of_pieces(first);
      std::uint32_t next;
#pragma unroll 1
      while (true) {
        const bool is_last = index + 1 == end;
        next = is_last ? p.first_piece(of_warp(taken)) : index + 1;
        fold(index, next);
        if (is_last) break;
        index = next;
      }
      taken = take();  // the answer arrives while codes are folded
      p.publish(p.counter(p.piece(first), log2_group), end - first, own == 0);
      if (next >= p.pieces()) return;
      index = next;
    }
  }

 private:
  static constexpr unsigned everyone = 0xFFFFFFFFu;

  __device__ __forceinline__ std::uint32_t take() const { return p.take(own == 0); }
  __device__ __forceinline__ static std::uint32_t of_warp(std::uint32_t taken) {
    return __shfl_sync(everyone, taken, 0);
  }

  // Where codes lie, from that of the first row on.
  __device__ __forceinline__ std::uint32_t offset_of(const LateRows::Piece& at) const {
    return static_cast<std::uint32_t>(at.row) * static_cast<std::uint32_t>(p.columns) + at.column;
  }

  // Turns to another piece of a row; returns how many of its codes there are from this lane's first
  // one on.
  __device__ __forceinline__ int begin(const LateRows::Piece& at) {
    from = p.codes + offset_of(at) + own;
    scale = p.scales + p.template word_offset_of<WordStep>(at.row, (at.column + own) / 128) +
            own / 32 % 4;
    word =
        at.is_stretch() ? static_cast<std::uint32_t>(p.exponents[at.row]) : scale_word(at.row, 0);
    return p.end_of(at) - at.column - own;
  }

  __device__ __forceinline__ void load(int i) {
    codes[i] = __ldcs(reinterpret_cast<const uint4*>(from + i * piece));
    bytes[i] = scale[i * piece / 128 * WordStep];
  }

  // This lane's codes of a block, `largest`: of the row.
  __device__ __forceinline__ uint4 folded(int i, unsigned largest) const {
    static_assert(!FoldTable<E4M3>::is_used);
    const FoldTable<E4M3> no_table = {};
    const BlockFold<E4M3> block(largest - bytes[i], bytes[i] == E8M0::nan_byte, no_table);
    return block(codes[i]);
  }

  // About as many pieces ahead as there are warps that make them.
  __device__ __forceinline__ void prefetch(std::uint32_t index) const {
    if (index >= p.pieces()) return;
    const LateRows::Piece at = p.piece(index);
    const std::uint8_t* line = p.codes + offset_of(at);
    const int codes_of_piece = p.end_of(at) - at.column;
#pragma unroll 1
    for (int i = own * 8; i < codes_of_piece; i += chunk) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(line + i));
    }
  }

  // Four scales, where the row has them; else four that count as NaN.
  __device__ __forceinline__ std::uint32_t scale_word(int row, int at) const {
    const int column = at + own * 8;
    if (column >= p.columns) return ~0u;
    return *reinterpret_cast<const std::uint32_t*>(
        p.scales + p.template word_offset_of<WordStep>(row, column / 128));
  }

  // The largest scale of a row; who folds a whole row finds it.
  __device__ __forceinline__ unsigned largest_of(const LateRows::Piece& at) const {
    constexpr int below = E8M0::bias + Fold<E4M3>::base_shift;
    if (at.is_stretch()) return word + below;
    std::uint32_t pairs = more_than(word);
#pragma unroll 2
    for (int i = chunk; i < p.columns; i += chunk)
      pairs = __vmaxu2(pairs, more_than(scale_word(at.row, i)));
    const unsigned largest = largest_of_warp(pairs);
    if (own == 0) p.exponents[at.row] = static_cast<std::int32_t>(largest) - below;
    return largest;
  }

  // What is on its way is of this piece's first columns, and then of the next one's.
  __device__ __forceinline__ void fold(std::uint32_t index, std::uint32_t next) {
    const LateRows::Piece at = p.piece(index);
    const unsigned largest = largest_of(at);
    prefetch(index + 4 * gridDim.x);
    std::uint8_t* to = static_cast<std::uint8_t*>(p.out) + offset_of(at) + own;
    int left = p.end_of(at) - at.column - own;
#pragma unroll 1
    while (true) {
      int next_left = left - round;
      const bool is_last = next_left + own <= 0;
      from += round;
      scale += round / 128 * WordStep;
      if (is_last) next_left = next < p.pieces() ? begin(p.piece(next)) : 0;
#pragma unroll
      for (int i = 0; i < depth; ++i) {
        const uint4 four = folded(i, largest);
        if (i * piece < left) *reinterpret_cast<uint4*>(to + i * piece) = four;
        if (i * piece < next_left) load(i);
      }
      if (is_last) return;
      to += round;
      left = next_left;
    }
  }
};

// A warp: rows of an operand with 2^log2_rows rows in a tile.
__device__ __forceinline__ void fold_late_rows(const LateRows& rows, int log2_rows) {
  if (rows.word_step == ScaleIndex::tile_blocks) {
    LateRowFolder<ScaleIndex::tile_blocks>(rows, log2_rows).run();
  } else {
    LateRowFolder<ScaleIndex::tile_bytes>(rows, log2_rows).run();
  }
}

}  // namespace mxkern::kernels
