// mxkern/kernels/operands/fold_both.cuh: both operands of a product folded by one kernel.
#pragma once

#include <cstdint>

#include "mxkern/kernels/operands/fold_rows.cuh"
#include "mxkern/kernels/operands/row_spreads.cuh"

namespace mxkern::kernels {

// Rows of two matrices with as many columns, as fold_rows_kernel takes them.
struct FoldBothParameters {
  struct Side {
    const std::uint8_t* codes;
    RowScaleWords scales;
    FoldedRows out;
    int rows;
  };
  Side sides[2];
  int columns;
  int parts;  // of a row
  ZeroedCounters counters[3];
};

inline constexpr int fold_both_threads = 256, fold_both_warps = fold_both_threads / 32;
inline constexpr int fold_both_blocks = 6;  // a multiprocessor

// A warp takes a part of a row, a Shares-th of fold_rows_chunk columns, and all scales of the row.
// There are more thread blocks than fit, and those of the second side begin as the first one's end.
// Spreads are what RowSpreads finds, enough for a gate.
template <class S, int Shares, bool FindsSpreads>
__global__ void __launch_bounds__(fold_both_threads, fold_both_blocks)
    fold_both_kernel(const __grid_constant__ FoldBothParameters p) {
  using Chunks = FoldRowChunks<S, Shares, false>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto item = static_cast<int>(blockIdx.x * fold_both_warps + threadIdx.x / 32);
  int row = item / p.parts;
  const int part = item - row * p.parts;
  const bool is_second = row >= p.sides[0].rows;
  const FoldBothParameters::Side& side = p.sides[is_second ? 1 : 0];
  if (is_second) row -= p.sides[0].rows;
  const int first = part * Chunks::share, chunk = first / fold_rows_chunk * fold_rows_chunk;
  const std::int64_t start = std::int64_t{row} * p.columns + first + lane * Chunks::unit;
  const std::uint8_t* codes = side.codes + start;
  const std::uint8_t* scales = side.scales.address(row, lane);
  __builtin_assume(__isGlobal(codes) && __isGlobal(scales));
  const int lane_columns = p.columns - lane * 128, step = side.scales.step;
  const int left = p.columns - first - lane * Chunks::unit;
  wait_at_start(Follows::behind);
  if (row < side.rows) {
    const auto word_at = [&](int at) -> std::uint32_t {
      if (at >= lane_columns) return ~0u;  // four that count as NaN
      return *reinterpret_cast<const std::uint32_t*>(scales + at / 128 * step);
    };
    // Ahead of the codes, or it comes behind them.
    const std::uint32_t word = word_at(chunk);
    uint4 loaded[Chunks::depth];
#pragma unroll
    for (int i = 0; i < Chunks::depth; ++i) {
      if (i * Chunks::piece < left) loaded[i] = Chunks::load(codes + i * Chunks::piece);
    }
    std::uint32_t pairs = more_than(word);
#pragma unroll 4
    for (int at = 0; at < p.columns; at += fold_rows_chunk) {
      if (at != chunk) pairs = __vmaxu2(pairs, more_than(word_at(at)));
    }
    const unsigned largest = largest_of_warp(pairs);
    unsigned no_spread = 0;
    Chunks::fold_loaded(loaded, word, (first - chunk) / 128, largest, left, side.out.data + start,
                        nullptr, 0, no_spread);
    if (part == 0) {
      unsigned spread = 0;
      if constexpr (FindsSpreads) {
        spread = RowSpreads<typename S::Format>{side.codes, side.scales}.of(row);
      }
      if (lane == 0) {
        side.out.template finish<typename S::Format, FindsSpreads>(row, largest, spread);
      }
    }
  }
  for (const ZeroedCounters& words : p.counters) words.clear();
}

}  // namespace mxkern::kernels
