// mxkern/kernels/device/row_grid.cuh: which octets a thread takes in kernels that walk along rows.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/tensor/scale_layout.h"

namespace mxkern::kernels {

inline constexpr int row_threads = 256;
inline constexpr int rows_per_thread = 4;
inline constexpr int row_spacing = 32;

// A thread takes the same octet of the rows r, r + 32, r + 64 and r + 96 of a tile of 128 rows:
// four loads in flight, and scales that lie together in the swizzled layout. A thread block spans
// 2^log2_across octets of 256 / 2^log2_across rows (times four). The grid has a thread block for
// every chunk of octets (x), group of rows (y) and matrix (z); y and z wrap around where the grid
// would be too large. No division: with 64-bit sizes it would cost more than the work.
struct RowGrid {
  std::int64_t batch;
  std::int64_t rows;
  std::int64_t octets;  // of a row
  int log2_across;
  int log2_depth = 0;  // a thread block takes 2^log2_depth groups of a tile, one after the other

  constexpr std::int64_t chunks() const { return ceil_div(octets, std::int64_t{1} << log2_across); }
  // Groups of rows: 32 rows of a tile are 2^log2_groups() groups.
  __host__ __device__ constexpr int log2_groups() const { return log2_across - 3; }
  __host__ __device__ constexpr std::int64_t groups() const {
    return ceil_div(rows, ScaleIndex::tile_rows) << log2_groups();
  }
  __host__ __device__ constexpr std::int64_t series() const { return groups() >> log2_depth; }
  // Those of tiles whose 128 rows are all there.
  __host__ __device__ constexpr std::int64_t whole_series() const {
    return rows / ScaleIndex::tile_rows << (log2_groups() - log2_depth);
  }
};

// The octets of one thread: row i of its four is `first_row + i * row_spacing`.
struct RowPosition {
  std::int64_t row_tile;
  int row_in_tile;  // 0..31
  int rows_left;    // rows of the matrix from the start of the tile on, at most 128

  __device__ __forceinline__ RowPosition(const RowGrid& grid, std::int64_t group) {
    const int down = row_threads >> grid.log2_across;
    row_tile = group >> grid.log2_groups();
    row_in_tile = static_cast<int>(group & ((1 << grid.log2_groups()) - 1)) * down +
                  static_cast<int>(threadIdx.x >> grid.log2_across);
    const std::int64_t left = grid.rows - row_tile * ScaleIndex::tile_rows;
    rows_left = left < ScaleIndex::tile_rows ? static_cast<int>(left) : ScaleIndex::tile_rows;
  }

  __device__ __forceinline__ std::int64_t first_row() const {
    return row_tile * ScaleIndex::tile_rows + row_in_tile;
  }
  __device__ __forceinline__ bool has_row(int i) const {
    return row_in_tile + i * row_spacing < rows_left;
  }
};

// Whether all octets of Bytes bytes that a thread block has of a row lie in the row's bytes. (One
// answer for the thread block: where 6-bit codes are stored, lanes exchange bytes.)
template <int Bytes>
__device__ __forceinline__ bool octets_are_whole(std::int64_t row_bytes, std::int64_t chunk,
                                                 int across) {
  return (chunk + 1) * across * Bytes <= row_bytes;
}

// Where the scales of a thread's four rows lie: `i * step` behind the first.
struct RowScales {
  std::int64_t offset;
  std::int64_t step;

  __device__ __forceinline__ RowScales(const ScaleIndex& index, const RowPosition& at,
                                       std::int64_t block) {
    offset = index.offset(at.first_row(), block);
    step = index.layout == ScaleLayout::swizzled ? 4 : row_spacing * index.blocks;
  }
};

}  // namespace mxkern::kernels
