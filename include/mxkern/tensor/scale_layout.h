// mxkern/tensor/scale_layout.h: where the scale of (row, block) lies.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"

namespace mxkern {

// row_major: [rows, blocks]. swizzled: the tiles of 128 rows x 4 blocks that cuBLAS, CUTLASS and
// torch's SWIZZLE_32_4_4 read; rows padded to 128, blocks to 4, padding bytes 0.
enum class ScaleLayout : std::uint8_t { row_major, swizzled };

inline constexpr ScaleLayout all_scale_layouts[] = {ScaleLayout::row_major, ScaleLayout::swizzled};

constexpr const char* name_of(ScaleLayout layout) {
  return layout == ScaleLayout::row_major ? "row_major" : "swizzled";
}

struct ScaleCoordinate {
  std::int64_t row;
  std::int64_t block;
};

// The scales of one matrix of rows x blocks; batches follow one another, each `size()` bytes.
struct ScaleIndex {
  static constexpr int tile_rows = 128;
  static constexpr int tile_blocks = 4;
  static constexpr int tile_bytes = tile_rows * tile_blocks;

  std::int64_t rows;
  std::int64_t blocks;
  ScaleLayout layout;

  // Bytes of one matrix, padding included.
  MXKERN_HOST_DEVICE constexpr std::int64_t size() const {
    if (layout == ScaleLayout::row_major) return rows * blocks;
    return round_up(rows, tile_rows) * round_up(blocks, tile_blocks);
  }

  MXKERN_HOST_DEVICE constexpr std::int64_t offset(std::int64_t row, std::int64_t block) const {
    if (layout == ScaleLayout::row_major) return row * blocks + block;
    // Unsigned: divisions by powers of two are then plain shifts.
    const auto r = static_cast<std::uint64_t>(row);
    const auto b = static_cast<std::uint64_t>(block);
    const auto across = static_cast<std::uint64_t>(blocks + tile_blocks - 1) / tile_blocks;
    return static_cast<std::int64_t>((r / tile_rows * across + b / tile_blocks) * tile_bytes +
                                     r % 32 * 16 + r % tile_rows / 32 * 4 + b % tile_blocks);
  }

  // The inverse of offset; of a padding byte, the coordinate outside the matrix that it stands for.
  MXKERN_HOST_DEVICE constexpr ScaleCoordinate coordinate(std::int64_t offset) const {
    if (layout == ScaleLayout::row_major) return {offset / blocks, offset % blocks};
    const std::int64_t tiles_across = ceil_div(blocks, tile_blocks);
    const std::int64_t tile = offset / tile_bytes;
    const std::int64_t within = offset % tile_bytes;
    return {tile / tiles_across * tile_rows + within / 16 + within % 16 / 4 * 32,
            tile % tiles_across * tile_blocks + within % 4};
  }
};

static_assert(ScaleIndex{128, 4, ScaleLayout::swizzled}.offset(33, 2) == 16 + 4 + 2);
static_assert(ScaleIndex{200, 5, ScaleLayout::swizzled}.size() == 256 * 8);

}  // namespace mxkern
