// mxkern/kernels/gemm/hopper/overlap.cuh: rows of operands that are made ready while the product is
// under way: which they are, and how who needs them waits.
#pragma once

#include <cstdint>

#include "mxkern/core/platform.h"
#include "mxkern/kernels/gemm/hopper/tile_order.cuh"
#include "mxkern/kernels/ptx/progress.cuh"
#include "mxkern/kernels/ptx/tma.cuh"
#include "mxkern/kernels/device/row_scale_words.cuh"

namespace mxkern::kernels {

// An operand in MXFP8 E4M3 with a multiple of 128 columns, of which the first rows are expanded or
// folded when the product starts. Warps that have nothing else to do make the others, from the
// first to the last, and the loads of a tile wait for its rows. Whichever thread blocks run make
// them all, so none waits for one that has not started. Of first rows that are folded the last
// columns may be late as well, as the first turn of tiles needs them step by step: they come before
// the other rows, in stretches of columns, each of all first rows.
struct LateRows {
  static constexpr int stretch = 2048;
  static constexpr int log2_stretches = 2;  // of adjacent rows, that a warp takes at a time

  const std::uint8_t* codes;   // null: no row is late
  const std::uint8_t* scales;  // four of a row start on 4 bytes
  void* out;                   // rows follow one another
  std::int32_t* exponents;
  // How many pieces of rows are taken; how many rows of each tile are ready; and, for each stretch
  // of columns, how many of each tile of first rows.
  std::uint32_t* progress;
  int first, rows, columns;
  int word_step;      // bytes from four scales of a row to the next: more than 4 where swizzled
  int exponent;       // of the largest elements of a row
  int columns_ahead;  // of the first rows: a multiple of `stretch`, or all
  std::uint32_t stretches;         // of columns, each of one of the first rows
  std::uint32_t inverse_of_first;  // times 2^32, rounded up

  // Of a first row some columns, of another row all.
  struct Piece {
    int row, column;
    int step;  // of stretches

    MXKERN_HOST_DEVICE bool is_stretch() const { return column > 0; }
  };

  __device__ __forceinline__ bool exist() const { return codes != nullptr; }
  // For a warp, by one of its lanes.
  __device__ __forceinline__ std::uint32_t take(bool is_the_lane) const {
    return is_the_lane ? atomicAdd(progress, 1u) : 0u;
  }
  MXKERN_HOST_DEVICE std::uint32_t pieces() const { return stretches + (rows - first); }
  MXKERN_HOST_DEVICE Piece piece(std::uint32_t index) const {
    if (index >= stretches) return {first + static_cast<int>(index - stretches), 0, 0};
#if defined(__CUDA_ARCH__)
    const auto step = static_cast<int>(__umulhi(index, inverse_of_first));
#else
    const auto step = static_cast<int>(std::uint64_t{index} * inverse_of_first >> 32);
#endif
    return {static_cast<int>(index) - step * first, columns_ahead + step * stretch, step};
  }
  // A warp takes a row at a time, or some stretches, as to tell of them takes long.
  MXKERN_HOST_DEVICE std::uint32_t first_piece(std::uint32_t ticket) const {
    const std::uint32_t of_stretches = stretches >> log2_stretches;
    return ticket < of_stretches ? ticket << log2_stretches : stretches + (ticket - of_stretches);
  }
  MXKERN_HOST_DEVICE std::uint32_t end_of_pieces(std::uint32_t first_piece) const {
    return first_piece + (first_piece < stretches ? 1u << log2_stretches : 1u);
  }
  MXKERN_HOST_DEVICE int end_of(const Piece& at) const {
    return at.is_stretch() ? min(at.column + stretch, columns) : columns;
  }
  // Of a tile with 2^log2_group rows.
  MXKERN_HOST_DEVICE std::uint32_t* counter(const Piece& at, int log2_group) const {
    const int tiles = ((rows - 1) >> log2_group) + 1;
    const int of_stretch = at.is_stretch() ? tiles + at.step * (first >> log2_group) : 0;
    return progress + 1 + of_stretch + (at.row >> log2_group);
  }
  // The copy engine of any multiprocessor reads what was written from now on.
  __device__ __forceinline__ void publish(std::uint32_t* counter, std::uint32_t count,
                                          bool is_the_lane) const {
    ptx::fence_global_for_tma();
    __syncwarp();
    if (is_the_lane) ptx::add_release(counter, count);
  }
  // Where the `word`th four scales of a row lie, of less than 2^32 in all.
  template <int WordStep>
  __device__ __forceinline__ std::uint32_t word_offset_of(int row, int word) const {
    const std::uint32_t blocks = static_cast<std::uint32_t>(columns) / 32;
    return begin_of_scales(static_cast<std::uint32_t>(row), blocks, WordStep) +
           static_cast<std::uint32_t>(word * WordStep);
  }
  // A warp that loads, of a tile of first rows: until the columns from one on are ready, of which
  // this is the first to ask. Returns where columns may not be.
  __device__ __forceinline__ int wait_for_columns(int row, int column, int log2_group) const {
    if (row >= first) return columns;
    if (column < columns_ahead) return columns_ahead;
    const int step = (column - columns_ahead) / stretch;
    const Piece at = {row, columns_ahead + step * stretch, step};
    const std::uint32_t* ready = counter(at, log2_group);
    while (ptx::load_acquire(ready) != 1u << log2_group) __nanosleep(32);
    ptx::fence_global_for_tma();
    return end_of(at);
  }
};

// Rows of an operand that a thread knows to be ready: those up to one.
struct ReadyRows {
  int ready;

  __device__ __forceinline__ explicit ReadyRows(const LateRows& p)
      : ready(p.exist() ? p.first : 0x7FFFFFFF) {}

  // Returns when those of a tile are, `group` of them: what this thread or the copy engine loads
  // then is what was written.
  __device__ __forceinline__ void wait(const LateRows& p, int begin, int group) {
    if (begin + group <= ready || begin >= p.rows) return;
    const std::uint32_t* counter = p.progress + 1 + begin / group;
    const auto wanted = static_cast<std::uint32_t>(min(group, p.rows - begin));
    while (ptx::load_acquire(counter) != wanted) __nanosleep(64);
    ptx::fence_global_for_tma();
    if (begin <= ready) ready = begin + group;
  }
};

// A thread that needs tiles of operands of which rows are late. There is nothing to wait for where
// the configuration does not make such.
template <class Config>
struct LateRowsSeen {
  __device__ __forceinline__ LateRowsSeen(const LateRows (&)[2], int) {}
  __device__ __forceinline__ void wait(const TileCorner&) {}
  __device__ __forceinline__ int wait(const TileCorner&, int, int end) const { return end; }
};

template <class Config>
requires(Config::has_late_rows && !Config::folds_late_rows) struct LateRowsSeen<Config> {
  const LateRows& left;
  const LateRows& right;
  ReadyRows left_rows, right_rows;

  __device__ __forceinline__ LateRowsSeen(const LateRows (&late)[2], int)
      : left(late[0]), right(late[1]), left_rows(left), right_rows(right) {}
  __device__ __forceinline__ void wait(const TileCorner& corner) {
    left_rows.wait(left, corner.row, Config::rows);
    right_rows.wait(right, corner.column, Config::columns);
  }
  __device__ __forceinline__ int wait(const TileCorner&, int, int end) const { return end; }
};

// One operand has late rows, and may have late columns.
template <class Config>
requires(Config::folds_late_rows) struct LateRowsSeen<Config> {
  const LateRows& p;
  int side;
  ReadyRows rows;

  __device__ __forceinline__ LateRowsSeen(const LateRows (&late)[2], int late_side)
      : p(late[0]), side(late_side), rows(p) {}
  __device__ __forceinline__ int begin_of(const TileCorner& corner) const {
    return side == 0 ? corner.row : corner.column;
  }
  __device__ __forceinline__ void wait(const TileCorner& corner) {
    rows.wait(p, begin_of(corner), Config::rows << side);
  }
  // Until the elements of a step are ready; returns the first step of whose this is not known.
  __device__ __forceinline__ int wait(const TileCorner& corner, int step, int end) const {
    if (!p.exist()) return end;
    const int column =
        p.wait_for_columns(begin_of(corner), step * Config::k, Config::log2_rows + side);
    return min(column / Config::k, end);
  }
};

}  // namespace mxkern::kernels
