// cpu/kernels/block_scales.h: the scales of many blocks at once, written for the compiler to vectorize.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernel_table.h"
#include "cpu/kernels/lanes_memory.h"
#include "mxkern/numerics/block_scale.h"

namespace mxkern::cpu {
namespace {

// The blocks that a kernel treats together: their elements stay in the first-level cache between
// the search for their largest magnitudes and their encoding.
inline constexpr int chunk_blocks = 64;

struct ChunkScales {
  alignas(64) std::uint32_t amax[chunk_blocks];  // as float32 bits
  alignas(64) std::uint8_t bytes[chunk_blocks];
  alignas(64) float multipliers[chunk_blocks];
};

template <class S>
[[gnu::always_inline]] inline void scale_blocks(ChunkScales& chunk, int blocks, ScaleRule rule,
                                                const TensorScale& tensor) {
  for (int b = 0; b < blocks; ++b) {
    const BlockScale scale = block_scale<S>(chunk.amax[b], rule, tensor);
    chunk.bytes[b] = scale.byte;
    chunk.multipliers[b] = scale.multiplier;
  }
}

// The scales of the first `blocks` blocks, rounded up to a whole register.
template <class S>
[[gnu::noinline]] void block_scales(ChunkScales& chunk, int blocks, ScaleRule rule,
                                    TensorScale tensor) {
  blocks = (blocks + 15) & ~15;
  if constexpr (S::has_tensor_scale) {
    scale_blocks<S>(chunk, blocks, rule, tensor);
  } else {
    // The rule is a constant in each loop.
    switch (rule) {
      case ScaleRule::rceil: return scale_blocks<S>(chunk, blocks, ScaleRule::rceil, tensor);
      case ScaleRule::floor: return scale_blocks<S>(chunk, blocks, ScaleRule::floor, tensor);
      case ScaleRule::ceil: return scale_blocks<S>(chunk, blocks, ScaleRule::ceil, tensor);
      case ScaleRule::even: return scale_blocks<S>(chunk, blocks, ScaleRule::even, tensor);
    }
  }
}

// Writes the scales of `blocks` blocks from the cursor's on. Padding behind the last block of a row
// is part of the last tile, and `bytes` has zeros there.
[[gnu::always_inline]] inline void store_scales(const std::uint8_t* bytes, int blocks,
                                                const ScaleCursor& cursor) {
  std::uint8_t* target = cursor.scales + cursor.index.offset(cursor.row, cursor.block);
  if (cursor.index.layout == ScaleLayout::row_major) {
    copy_elements(target, bytes, blocks);
  } else {
    for (int b = 0; b < blocks; b += ScaleIndex::tile_blocks, target += ScaleIndex::tile_bytes) {
      std::memcpy(target, bytes + b, ScaleIndex::tile_blocks);
    }
  }
}

// Reads the scales of `blocks` blocks from the cursor's on.
[[gnu::always_inline]] inline void load_scales(const ScaleCursor& cursor, int blocks,
                                               std::uint8_t* bytes) {
  const std::uint8_t* source = cursor.scales + cursor.index.offset(cursor.row, cursor.block);
  if (cursor.index.layout == ScaleLayout::row_major) {
    copy_elements(bytes, static_cast<const std::uint8_t*>(source), blocks);
  } else {
    for (int b = 0; b < blocks; b += ScaleIndex::tile_blocks, source += ScaleIndex::tile_bytes) {
      std::memcpy(bytes + b, source, ScaleIndex::tile_blocks);
    }
  }
}

}  // namespace
}  // namespace mxkern::cpu
