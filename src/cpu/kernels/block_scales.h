// cpu/kernels/block_scales.h: the scales of many blocks at once, for the compiler to vectorize.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/chunk.h"
#include "mxkern/numerics/block_scale.h"

namespace mxkern::cpu {
namespace {

// The scales of a chunk's blocks; amax as float32 bits.
template <class S>
struct ChunkScales {
  alignas(64) std::uint32_t amax[chunk_blocks<S>];
  alignas(64) std::uint8_t bytes[chunk_blocks<S>];
  alignas(64) float multipliers[chunk_blocks<S>];
};

template <class S>
[[gnu::always_inline]] inline void scale_blocks(ChunkScales<S>& chunk, int blocks, ScaleRule rule,
                                                const TensorScale& tensor) {
  for (int b = 0; b < blocks; ++b) {
    const BlockScale scale = block_scale<S>(chunk.amax[b], rule, tensor);
    chunk.bytes[b] = scale.byte;
    chunk.multipliers[b] = scale.multiplier;
  }
}

// The scales of the first `blocks` blocks, a multiple of lane_count.
template <class S>
[[gnu::noinline]] void block_scales(ChunkScales<S>& chunk, int blocks, ScaleRule rule,
                                    TensorScale tensor) {
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

}  // namespace
}  // namespace mxkern::cpu
