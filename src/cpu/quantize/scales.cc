// cpu/quantize/scales.cc: block scales from one layout to the other, in parallel.
#include <cstring>

#include "cpu/backend.h"
#include "cpu/quantize/tiles.h"

namespace mxkern::cpu {
namespace {

constexpr std::int64_t group =
    ScaleIndex::tile_blocks;  // scales of a row: adjacent in both layouts

// A group at the edge. Padding is zero.
void copy_group(const std::uint8_t* from, std::uint8_t* to, std::int64_t count,
                std::int64_t padded) {
  std::uint8_t scales[group] = {};
  std::memcpy(scales, from, static_cast<std::size_t>(count));
  std::memcpy(to, scales, static_cast<std::size_t>(padded));
}

// The groups of a whole tile, in the order of the swizzled layout: rows 0, 32, 64, 96, 1, 33, ...
template <bool ToSwizzled>
void copy_tile(const std::uint8_t* from, std::uint8_t* to, std::int64_t blocks) {
  for (std::int64_t i = 0; i < ScaleIndex::tile_rows; ++i) {
    constexpr ScaleIndex tile{ScaleIndex::tile_rows, group, ScaleLayout::swizzled};
    const std::int64_t swizzled = i * group, row_major = tile.coordinate(swizzled).row * blocks;
    std::memcpy(to + (ToSwizzled ? swizzled : row_major),
                from + (ToSwizzled ? row_major : swizzled), group);
  }
}

}  // namespace

void convert_scales(const std::uint8_t* from, ScaleLayout from_layout, std::uint8_t* to,
                    ScaleLayout to_layout, std::int64_t batch, std::int64_t rows,
                    std::int64_t blocks) {
  const ScaleIndex source{rows, blocks, from_layout};
  const ScaleIndex target{rows, blocks, to_layout};
  const bool pads = to_layout == ScaleLayout::swizzled;
  const Shape shape{batch, pads ? round_up(rows, ScaleIndex::tile_rows) : rows, blocks};
  if (shape.size() == 0) return;
  // The padding rows of a tile belong to the tile's work.
  const TileShape part = line_tile(shape, ScaleIndex::tile_rows, tile_elements);
  for_each_tile(shape, part, [&](const Tile& tile) {
    const std::uint8_t* from_matrix = from + tile.batch * source.size();
    std::uint8_t* to_matrix = to + tile.batch * target.size();
    const std::int64_t last_row = tile.row + tile.rows, last_block = tile.column + tile.columns;
    for (std::int64_t row = tile.row; row < last_row; row += ScaleIndex::tile_rows) {
      const bool has_all_rows = row + ScaleIndex::tile_rows <= rows;
      for (std::int64_t block = tile.column; block < last_block; block += group) {
        if (has_all_rows && block + group <= blocks) {
          const auto copy = pads ? copy_tile<true> : copy_tile<false>;
          copy(from_matrix + source.offset(row, block), to_matrix + target.offset(row, block),
               blocks);
          continue;
        }
        const std::int64_t end = std::min(row + ScaleIndex::tile_rows, last_row);
        for (std::int64_t line = row; line < end; ++line) {
          const std::int64_t count = line < rows ? std::min(group, blocks - block) : 0;
          copy_group(count > 0 ? from_matrix + source.offset(line, block) : from_matrix,
                     to_matrix + target.offset(line, block), count, pads ? group : count);
        }
      }
    }
  });
}

}  // namespace mxkern::cpu
