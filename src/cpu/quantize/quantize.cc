// cpu/quantize/quantize.cc: quantizes a tensor in parallel, along its rows, its columns, or both.
#include <algorithm>
#include <cstring>
#include <span>

#include "check/quantize.h"
#include "cpu/backend.h"
#include "cpu/runtime/cache.h"
#include "cpu/quantize/patch.h"
#include "cpu/runtime/prefetch.h"
#include "cpu/runtime/scratch.h"
#include "cpu/quantize/tensor_amax.h"
#include "cpu/quantize/tiles.h"
#include "mxkern/core/float_environment.h"
#include "mxkern/threads.h"

namespace mxkern::cpu {
namespace {

// One direction of a call.
struct Direction {
  LineSource source;
  BlockScaled out;
  const QuantizeOptions& options;
  SchemeFacts facts;
  TensorScale tensor = {};

  bool is_stochastic() const { return options.rounding == Rounding::stochastic; }

  // Whether parts of any size are read where they lie, and nothing goes with them.
  bool is_in_place() const { return source.is_direct() && !is_stochastic(); }

  // Lines that share their scales.
  std::int64_t group() const { return options.block_shape == BlockShape::square ? facts.block : 1; }

  // Whether nothing is asked of columns that needs them as lines.
  bool is_across() const {
    const bool chooses_for_squares = options.four_over_six && group() > 1;
    return source.transposed && AcrossMemory::rows % facts.block == 0 &&
           source.signs.size <= AcrossMemory::rows && !chooses_for_squares;
  }
};

Direction make_direction(const Buffer& x, bool transposed, const BlockScaled& out,
                         const QuantizeOptions& options, const KernelTable& kernels) {
  const Hadamard& hadamard = options.hadamard;
  return {{x, transposed, {hadamard.size, hadamard.signs}, kernels},
          out,
          options,
          facts_of(out.scheme)};
}

// Finds and stores the tensor scale of each direction of nvfp4.
void set_tensor_scales(std::span<Direction> directions) {
  // Without a transform both directions see the same elements, and x can be read as it lies.
  const Direction& any = directions.front();
  const LineSource plain{any.source.x, false, {0, {}}, any.source.kernels};
  const LineSource* sources[2];
  std::size_t count = 0;
  std::size_t slots[2] = {};
  float amaxes[2];
  for (std::size_t i = 0; i < directions.size(); ++i) {
    const QuantizeOptions& options = directions[i].options;
    if (!finds_amax(directions[i].out.scheme, options)) continue;
    const LineSource* source = options.hadamard.size == 0 ? &plain : &directions[i].source;
    slots[i] = count == 1 && sources[0] == source ? 0 : count++;
    sources[slots[i]] = source;
  }
  if (count != 0) find_amaxes({sources, count}, amaxes);
  for (std::size_t i = 0; i < directions.size(); ++i) {
    const QuantizeOptions& options = directions[i].options;
    if (options.tensor_scale != nullptr) {
      directions[i].tensor = TensorScale::from_decode_multiplier(*options.tensor_scale);
    } else if (options.amax != nullptr) {
      directions[i].tensor = TensorScale::from_amax(*options.amax);
    } else {
      directions[i].tensor = TensorScale::from_amax(amaxes[slots[i]]);
    }
  }
  for (std::size_t i = 0; i < directions.size(); ++i) {
    const QuantizeOptions& options = directions[i].options;
    if (finds_amax(directions[i].out.scheme, options) && options.found_amax != nullptr) {
      *options.found_amax = amaxes[slots[i]];
    }
    *directions[i].out.tensor_scale = directions[i].tensor.stored;
  }
}

// Where the code of an element, the first of a block, lies.
std::uint8_t* code_address(const Direction& direction, std::int64_t batch, std::int64_t line,
                           std::int64_t element) {
  const BlockScaled& out = direction.out;
  const std::int64_t row = batch * out.shape.rows + line;
  return out.codes + row * code_row_bytes(out.scheme, out.shape.columns) +
         element / direction.facts.block * direction.facts.block_bytes;
}

std::int64_t code_bytes(const BlockScaled& out) {
  return out.shape.batch * out.shape.rows * code_row_bytes(out.scheme, out.shape.columns);
}

// The task of a part of x whose lines are there.
QuantizeTask task_of(const Direction& direction, const Tile& part, const Lines& lines) {
  const LineSource& source = direction.source;
  const QuantizeOptions& options = direction.options;
  const BlockScaled& out = direction.out;
  const std::int64_t line = source.transposed ? part.column : part.row;
  const std::int64_t element = source.transposed ? part.row : part.column;
  const ScaleIndex index = out.scale_index();
  return {.x = lines.data,
          .x_stride = lines.stride,
          .random = nullptr,
          .random_stride = lines.elements,
          .lines = lines.count,
          .elements = lines.elements,
          .codes = code_address(direction, part.batch, line, element),
          .code_stride = code_row_bytes(out.scheme, out.shape.columns),
          .scales = {out.scales + part.batch * index.size(), index, line,
                     element / direction.facts.block},
          .rule = options.scale_rule,
          .tensor = direction.tensor,
          .square = options.block_shape == BlockShape::square,
          .transposed = source.transposed,
          .four_over_six = options.four_over_six,
          .block_error = options.block_error,
          .choice = nullptr,
          .streams = are_more_than_caches(code_bytes(out)) && source.is_direct()};
}

void quantize(const Direction& direction, const QuantizeTask& task) {
  const LineSource& source = direction.source;
  source.kernels.quantize[static_cast<int>(direction.out.scheme)][static_cast<int>(source.x.dtype)]
                         [static_cast<int>(direction.options.rounding)](task);
}

void quantize_part(const Direction& direction, const Tile& part) {
  const LineSource& source = direction.source;
  const QuantizeOptions& options = direction.options;
  if (direction.is_in_place()) {
    return quantize(direction, task_of(direction, part, lines_in_place(source, part)));
  }
  Patch& patch = scratch<Patch>();
  QuantizeTask task = task_of(direction, part, patch.load(source, part));
  task.choice = patch.choice();
  if (direction.is_stochastic()) {
    task.random = patch.load_random(source, part, options.seed, options.offset);
  }
  quantize(direction, task);
}

// Asks for one of `shares` equal shares of what this direction will touch in the next tile: rows of
// x, and the codes of as large a share of its lines. Either are short stretches of many rows.
[[gnu::always_inline]] inline void prefetch_share(const Direction& direction, const Tile& next,
                                                  std::int64_t share, std::int64_t shares) {
  const Buffer& x = direction.source.x;
  const auto size = static_cast<std::int64_t>(size_of(x.dtype));
  const std::int64_t rows = ceil_div(next.rows, shares);
  const std::int64_t row = share * rows;
  prefetch_rows(address(x, next.batch, next.row + row, next.column), x.row_stride * size,
                std::min(rows, next.rows - row), next.columns * size);
  if (!direction.source.transposed) return;
  const BlockScaled& out = direction.out;
  const std::int64_t lines = ceil_div(next.columns, shares);
  const std::int64_t line = share * lines;
  prefetch_rows(code_address(direction, next.batch, next.column + line, next.row),
                code_row_bytes(out.scheme, out.shape.columns), std::min(lines, next.columns - line),
                code_row_bytes(out.scheme, next.rows));
}

void quantize_tile(const Direction& direction, const Tile& tile) {
  if (direction.is_in_place()) return quantize_part(direction, tile);
  const TileShape shape = patch_shape(direction.source, tile, direction.group());
  const Tile next = next_tile(tile, direction.source.x.shape);
  const std::int64_t shares =
      ceil_div(tile.rows, shape.rows) * ceil_div(tile.columns, shape.columns);
  std::int64_t share = 0;
  for_each_part(tile, shape, [&](const Tile& part) {
    prefetch_share(direction, next, share++, shares);
    quantize_part(direction, part);
  });
}

// What kernels want first after `part`: the rows below it, those right of its strip, or those of
// the next tile.
Ahead ahead_of(const Buffer& x, const Tile& tile, const Tile& part) {
  Tile next = part;
  next.row += part.rows;
  if (next.row >= tile.row + tile.rows) {
    next = tile;
    next.column = part.column + part.columns;
    if (next.column >= tile.column + tile.columns) next = next_tile(tile, x.shape);
  }
  constexpr std::int64_t first_rows = 32;
  const std::int64_t columns = std::min(x.shape.columns - next.column, line_unit);
  const auto size = static_cast<std::int64_t>(size_of(x.dtype));
  return {address(x, next.batch, next.row, next.column), x.row_stride * size,
          std::min(next.rows, first_rows), columns * size};
}

// Whether codes are more than caches may hold, and whole lines of them can be written.
bool streams(const BlockScaled& out) {
  return code_row_bytes(out.scheme, out.shape.columns) % cache_line == 0 &&
         are_more_than_caches(code_bytes(out));
}

// The same for columns that are encoded as they lie. `is_near`: the tile was read just before.
void quantize_across(const Direction& columns, const Tile& tile, bool is_near) {
  const LineSource& source = columns.source;
  const Shape& shape = source.x.shape;
  const QuantizeOptions& options = columns.options;
  const KernelTable::QuantizeAcross kernel = source.kernels.quantize_across[static_cast<int>(
      columns.out.scheme)][static_cast<int>(source.x.dtype)][static_cast<int>(options.rounding)];
  AcrossMemory& memory = scratch<AcrossMemory>();
  for_each_part(tile, {tile.rows, line_unit}, [&](const Tile& strip) {
    for_each_part(strip, {line_unit, line_unit}, [&](const Tile& part) {
      const std::byte* x = address(source.x, part.batch, part.row, part.column);
      kernel({.lines = task_of(columns, part, {x, source.x.row_stride, part.columns, part.rows}),
              .signs = source.signs.size == 0 ? nullptr : &source.signs,
              .random = {options.seed, options.offset, first_index(shape, part), shape.columns},
              .memory = memory,
              .streams = streams(columns.out),
              .is_last = part.row + part.rows == tile.row + tile.rows,
              .is_end = part.row + part.rows == tile.row + tile.rows &&
                        part.column + part.columns == tile.column + tile.columns,
              .is_near = is_near,
              .ahead = ahead_of(source.x, tile, part)});
    });
  });
}

// Rows that swizzled scales are padded with. (Kernels write the padding behind the blocks of a
// row.)
void clear_padding_rows(const BlockScaled& out) {
  const ScaleIndex index = out.scale_index();
  if (index.layout == ScaleLayout::row_major || index.rows % ScaleIndex::tile_rows == 0) return;
  const std::int64_t last =
      index.offset(index.rows / ScaleIndex::tile_rows * ScaleIndex::tile_rows, 0);
  for (std::int64_t b = 0; b < out.shape.batch; ++b) {
    std::memset(out.scales + b * index.size() + last, 0,
                static_cast<std::size_t>(index.size() - last));
  }
}

// All directions, tile by tile.
void run_tiles(std::span<const Direction> directions) {
  const Direction& first = directions.front();
  const Shape& shape = first.source.x.shape;
  // Rows alone are read in long stretches; columns need tiles of which whole lines can be made.
  // Both read such a tile one after the other, so that each goes through memory in its own way.
  const bool rows_alone = directions.size() == 1 && !first.source.transposed;
  const bool across = directions.back().is_across();
  const TileShape tiles = rows_alone               ? line_tile(shape, first.group(), tile_elements)
                          : !across                ? panel_tile(shape)
                          : directions.size() == 1 ? strip_tile(shape)
                                                   : band_tile(shape, num_threads());
  for_each_tile(shape, tiles, [&](const Tile& tile) {
    for (const Direction& direction : directions) {
      if (direction.is_across()) {
        quantize_across(direction, tile, directions.size() > 1);
      } else {
        quantize_tile(direction, tile);
      }
    }
  });
}

// Whether x is better read once for each direction than once for both: then rows are one line, and
// columns are written in long stretches. With codes of 8 bits, or rows longer than a band.
bool are_apart(std::span<const Direction> directions) {
  const Direction& last = directions.back();
  const std::int64_t columns = last.source.x.shape.columns;
  return last.is_across() && are_more_than_caches(code_bytes(last.out)) &&
         (last.facts.bits == 8 || columns > longest_band);
}

// A direction for which x is read alone: rows as one line, where they follow one another.
Direction alone(Direction direction) {
  if (direction.source.transposed || direction.group() > 1) return direction;
  Buffer& x = direction.source.x;
  if (is_one_line(direction.out, x)) x = as_one_line(x);
  direction.out.shape = x.shape;
  return direction;
}

void run(std::span<Direction> directions) {
  if (directions.front().facts.has_tensor_scale) set_tensor_scales(directions);
  if (directions.front().source.x.shape.size() == 0) return;
  for (const Direction& direction : directions) clear_padding_rows(direction.out);
  if (directions.size() > 1 && !are_apart(directions)) return run_tiles(directions);
  for (const Direction& direction : directions) {
    const Direction one = alone(direction);
    run_tiles({&one, 1});
  }
}

}  // namespace

void quantize(const Buffer& x, const BlockScaled* rows, const QuantizeOptions& row_options,
              const BlockScaled* columns, const QuantizeOptions& column_options,
              const KernelTable& kernels) {
  const FloatEnvironment environment;  // of the tensor scales; parallel work has its own
  if (columns == nullptr) {
    Direction directions[] = {make_direction(x, false, *rows, row_options, kernels)};
    run(directions);
  } else if (rows == nullptr) {
    Direction directions[] = {make_direction(x, true, *columns, column_options, kernels)};
    run(directions);
  } else {
    Direction directions[] = {make_direction(x, false, *rows, row_options, kernels),
                              make_direction(x, true, *columns, column_options, kernels)};
    run(directions);
  }
}

}  // namespace mxkern::cpu
