// cpu/scales.cc: block scales from one layout to the other, in parallel.
#include <cstring>

#include "cpu/backend.h"
#include "cpu/tiles.h"

namespace mxkern::cpu {
namespace {

// A row of one tile of swizzled scales: adjacent in both layouts. Padding is zero.
void copy_group(const std::uint8_t* from, std::uint8_t* to, std::int64_t count,
                std::int64_t padded) {
  std::uint8_t group[ScaleIndex::tile_blocks] = {};
  std::memcpy(group, from, static_cast<std::size_t>(count));
  std::memcpy(to, group, static_cast<std::size_t>(padded));
}

}  // namespace

void convert_scales(const std::uint8_t* from, ScaleLayout from_layout, std::uint8_t* to,
                    ScaleLayout to_layout, std::int64_t batch, std::int64_t rows,
                    std::int64_t blocks) {
  constexpr std::int64_t group = ScaleIndex::tile_blocks;
  const ScaleIndex source{rows, blocks, from_layout};
  const ScaleIndex target{rows, blocks, to_layout};
  const bool pads = to_layout == ScaleLayout::swizzled;
  const Shape shape{batch, pads ? round_up(rows, ScaleIndex::tile_rows) : rows, blocks};
  if (shape.size() == 0) return;
  // The padding rows of a tile belong to the tile's work.
  for_each_tile(shape, line_tile(shape, 1, tile_elements), [&](const Tile& tile) {
    const std::uint8_t* from_matrix = from + tile.batch * source.size();
    std::uint8_t* to_matrix = to + tile.batch * target.size();
    for (std::int64_t row = tile.row; row < tile.row + tile.rows; ++row) {
      for (std::int64_t block = tile.column; block < tile.column + tile.columns; block += group) {
        const std::int64_t count = row < rows ? std::min(group, blocks - block) : 0;
        copy_group(count > 0 ? from_matrix + source.offset(row, block) : from_matrix,
                   to_matrix + target.offset(row, block), count, pads ? group : count);
      }
    }
  });
}

}  // namespace mxkern::cpu
