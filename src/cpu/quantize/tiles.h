// cpu/quantize/tiles.h: a tensor cut into tiles that threads work on.
#pragma once

#include <algorithm>
#include <cstddef>

#include "cpu/kernel_table.h"
#include "cpu/runtime/parallel.h"
#include "mxkern/core/buffer.h"
#include "mxkern/core/math.h"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern::cpu {

// A thread is worth waking for this many elements.
inline constexpr std::int64_t grain_elements = 64 * 1024;

// The size of a tile whose elements are read once and in order.
inline constexpr std::int64_t tile_elements = 32 * 1024;

struct TileShape {
  std::int64_t rows;
  std::int64_t columns;
};

struct Tile {
  std::int64_t batch;
  std::int64_t row;
  std::int64_t column;
  std::int64_t rows;
  std::int64_t columns;
};

// The place of the first element of a tile among those of the tensor, which random words go by.
constexpr std::uint64_t first_index(const Shape& shape, const Tile& tile) {
  return static_cast<std::uint64_t>((tile.batch * shape.rows + tile.row) * shape.columns +
                                    tile.column);
}

// As long lines as fit into `elements`, together with `group` - 1 others; then as many groups of
// lines as fit.
constexpr TileShape line_tile(const Shape& shape, std::int64_t group, std::int64_t elements) {
  const std::int64_t columns =
      std::min(shape.columns, std::max(elements / group / line_unit, std::int64_t{1}) * line_unit);
  const std::int64_t groups = std::max(elements / (columns * group), std::int64_t{1});
  return {std::min(round_up(shape.rows, group), groups * group), columns};
}

// For work along the columns: one unit of rows, and long stretches of them; more where there are
// few rows.
constexpr TileShape panel_tile(const Shape& shape) {
  constexpr std::int64_t units = 4;
  const std::int64_t rows = std::min(shape.rows, line_unit);
  return {rows, std::min(shape.columns, ceil_div(units * line_unit, rows) * line_unit)};
}

// For work along the columns that is done in squares of one unit, one below the other: what two of
// them write of a line of cache is still there. More to the right where there are few rows.
constexpr TileShape strip_tile(const Shape& shape) {
  constexpr std::int64_t units = 8;
  const std::int64_t rows = std::min(shape.rows, units * line_unit);
  return {rows, std::min(shape.columns,
                         ceil_div(units * line_unit, round_up(rows, line_unit)) * line_unit)};
}

inline constexpr std::int64_t longest_band = 32 * line_unit;

// For rows and then columns of a tile that a large cache keeps: one unit of rows, and stretches of
// them that are as long as leaves every thread a few tiles.
constexpr TileShape band_tile(const Shape& shape, int threads) {
  constexpr std::int64_t shortest = 4 * line_unit;
  const std::int64_t bands = shape.batch * ceil_div(shape.rows, line_unit);
  const std::int64_t across = ceil_div(4 * threads, bands);
  const std::int64_t columns = round_up(ceil_div(shape.columns, across), line_unit);
  return {std::min(shape.rows, line_unit),
          std::min(shape.columns, std::clamp(columns, shortest, longest_band))};
}

// The tile to the right, or the first one below it; without rows where there is none.
constexpr Tile next_tile(const Tile& tile, const Shape& shape) {
  Tile next = tile;
  next.column += tile.columns;
  if (next.column >= shape.columns) {
    next.column = 0;
    next.row += tile.rows;
  }
  next.rows = std::clamp(shape.rows - next.row, std::int64_t{0}, tile.rows);
  next.columns = std::min(shape.columns - next.column, tile.columns);
  return next;
}

// Calls work(tile) for tiles of one batch entry, without threads.
template <class Work>
void for_each_part(const Tile& whole, TileShape part, Work&& work) {
  for (std::int64_t row = 0; row < whole.rows; row += part.rows) {
    for (std::int64_t column = 0; column < whole.columns; column += part.columns) {
      work(Tile{whole.batch, whole.row + row, whole.column + column,
                std::min(part.rows, whole.rows - row),
                std::min(part.columns, whole.columns - column)});
    }
  }
}

// Calls work(tile) for every tile of a tensor that is not empty, from several threads.
template <class Work>
void for_each_tile(const Shape& shape, TileShape tile, Work&& work) {
  const std::int64_t across = ceil_div(shape.columns, tile.columns);
  const std::int64_t down = ceil_div(shape.rows, tile.rows);
  const std::int64_t grain = std::max(grain_elements / (tile.rows * tile.columns), std::int64_t{1});
  parallel_for(shape.batch * down * across, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / across % down * tile.rows;
      const std::int64_t column = i % across * tile.columns;
      work(Tile{i / (across * down), row, column, std::min(tile.rows, shape.rows - row),
                std::min(tile.columns, shape.columns - column)});
    }
  });
}

inline std::byte* address(const Buffer& buffer, std::int64_t batch, std::int64_t row,
                          std::int64_t column) {
  const std::int64_t index = batch * buffer.batch_stride + row * buffer.row_stride + column;
  return static_cast<std::byte*>(buffer.data) +
         index * static_cast<std::int64_t>(size_of(buffer.dtype));
}

// Whether the blocks of all rows follow one another like those of a single line; x: the elements.
inline bool is_one_line(const BlockScaled& q, const Buffer& x) {
  return q.scale_layout == ScaleLayout::row_major &&
         q.shape.columns % facts_of(q.scheme).block == 0 && is_dense(x);
}

// The elements of a dense tensor as a single line: short rows cost nothing then.
constexpr Buffer as_one_line(const Buffer& buffer) {
  if (!is_dense(buffer)) return buffer;
  return Buffer::dense(buffer.data, buffer.dtype, {1, 1, buffer.shape.size()}, buffer.device);
}

}  // namespace mxkern::cpu
