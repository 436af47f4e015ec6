// cpu/kernels/chunk.h: the blocks that a kernel treats together, and their scales in memory.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernel_table.h"
#include "cpu/kernels/lanes_memory.h"

namespace mxkern::cpu {
namespace {

// Few enough that their elements stay in the first-level cache between the search for their largest
// magnitudes and their encoding; enough to fill registers with what is computed once a block.
template <class S>
inline constexpr int chunk_blocks = 1024 / S::block;

// How a task is cut into chunks: a stretch of one line, or several whole lines. The blocks of a
// line start at multiples of `line_blocks` of the chunk, itself a multiple of the blocks of a tile
// of swizzled scales: what is padding there is an empty block here.
struct ChunkShape {
  std::int64_t lines;
  std::int64_t elements;
  int line_blocks;

  template <class S>
  [[gnu::always_inline]] static ChunkShape of(std::int64_t elements) {
    const std::int64_t blocks = lower_of<std::int64_t>(
        round_up(ceil_div(elements, S::block), ScaleIndex::tile_blocks), chunk_blocks<S>);
    return {chunk_blocks<S> / blocks, blocks * S::block, static_cast<int>(blocks)};
  }
};

// Writes the scales of `blocks` blocks from the cursor's on, the padding of the last tile included.
template <class S>
[[gnu::always_inline]] inline void store_scales(const std::uint8_t* bytes, std::int64_t blocks,
                                                const ScaleCursor& cursor) {
  std::uint8_t* target = cursor.scales + cursor.index.offset(cursor.row, cursor.block);
  if (cursor.index.layout == ScaleLayout::row_major) {
    copy_elements(target, bytes, blocks);
  } else if constexpr (S::block * ScaleIndex::tile_blocks > line_unit) {
    // Where a task begins or ends within a tile of scales, the rest of it is another's.
    const bool is_last = cursor.block + blocks == cursor.index.blocks;
    const std::int64_t end = cursor.block + blocks;
    for (std::int64_t b = cursor.block;
         b < (is_last ? round_up(end, ScaleIndex::tile_blocks) : end); ++b) {
      cursor.scales[cursor.index.offset(cursor.row, b)] =
          b < end ? bytes[b - cursor.block] : std::uint8_t{0};
    }
  } else {
    for (std::int64_t b = 0; b < blocks; b += ScaleIndex::tile_blocks) {
      std::memcpy(target, bytes + b, ScaleIndex::tile_blocks);
      target += ScaleIndex::tile_bytes;
    }
  }
}

// Reads the scales of `blocks` blocks from the cursor's on.
[[gnu::always_inline]] inline void load_scales(const ScaleCursor& cursor, std::int64_t blocks,
                                               std::uint8_t* bytes) {
  const std::uint8_t* source = cursor.scales + cursor.index.offset(cursor.row, cursor.block);
  if (cursor.index.layout == ScaleLayout::row_major) {
    copy_elements(bytes, source, blocks);
  } else {
    for (std::int64_t b = 0; b < blocks; b += ScaleIndex::tile_blocks) {
      std::memcpy(bytes + b, source, ScaleIndex::tile_blocks);
      source += ScaleIndex::tile_bytes;
    }
  }
}

}  // namespace
}  // namespace mxkern::cpu
