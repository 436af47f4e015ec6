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

struct BlockScaleLanes {
  BitLanes bytes;
  FloatLanes multipliers;
};

// Returns the factors that elements are multiplied with, from their decoded block scales.
[[gnu::always_inline]] inline FloatLanes multipliers_of(FloatLanes scales,
                                                        const TensorScale& tensor) {
  return lower_of<FloatLanes>(1.0f / (scales * tensor.decode),
                              broadcast<FloatLanes>(float32::largest()));
}

// block_scale of one block a lane, whose largest magnitudes are finite.
template <class S, ScaleRule R>
[[gnu::always_inline]] inline BlockScaleLanes finite_block_scales(BitLanes amax,
                                                                  const TensorScale& tensor) {
  if constexpr (S::ScaleFormat::is_power_of_two) {
    constexpr E8M0Rule rule = E8M0Rule::of<typename S::Format>(R);
    const BitLanes bytes = rule.bytes(amax);
    const BitLanes power = (254u - bytes) << float32::mantissa_bits;
    const BitLanes subnormal = broadcast<BitLanes>(bits_of(E8M0::reciprocal(E8M0::max_byte)));
    return {bytes, float_of<BitLanes>(higher_of<BitLanes>(power, subnormal))};
  } else {
    using Scale = typename S::ScaleFormat::Element;
    const FloatLanes largest = broadcast<FloatLanes>(float32::largest());
    const FloatLanes ratio =
        float_of<BitLanes>(amax) * (tensor.encode * (1.0f / S::Format::max_value));
    const BitLanes bytes = encode_lanes<Scale>(lower_of<FloatLanes>(ratio, largest));
    return {bytes, multipliers_of(decode_lanes<Scale>(bytes), tensor)};
  }
}

template <class S, ScaleRule R>
[[gnu::always_inline]] inline void scale_blocks(ChunkScales<S>& chunk, int blocks,
                                                const TensorScale& tensor) {
  const BitLanes largest = broadcast<BitLanes>(float32::largest_bits);
  const BitLanes poison = broadcast<BitLanes>(std::uint32_t{S::ScaleFormat::nan_byte});
#pragma GCC unroll 1
  for (int b = 0; b < blocks; b += lane_count) {
    const auto amax = load_vector<BitLanes>(chunk.amax + b);
    const auto finite = BitLanes(amax <= largest);
    const BlockScaleLanes scales = finite_block_scales<S, R>(amax & finite, tensor);
    const BitLanes bytes = (scales.bytes & finite) | (poison & ~finite);
    store_vector(chunk.bytes + b, __builtin_convertvector(bytes, ByteLanes));
    store_vector(chunk.multipliers + b, bits_of(scales.multipliers) & finite);
  }
}

// The scales of the first `blocks` blocks, a multiple of lane_count: block_scale in lanes.
template <class S>
[[gnu::noinline]] void block_scales(ChunkScales<S>& chunk, int blocks, ScaleRule rule,
                                    TensorScale tensor) {
  if constexpr (S::ScaleFormat::is_power_of_two) {
    visit(rule, [&](auto r) { scale_blocks<S, r()>(chunk, blocks, tensor); });
  } else {
    if constexpr (!S::has_tensor_scale) tensor = {1.0f, 1.0f, 1.0f};
    scale_blocks<S, ScaleRule::rceil>(chunk, blocks, tensor);
  }
}

// Whether no block of the first `blocks`, a multiple of lane_count, is poisoned.
template <class S>
[[gnu::always_inline]] inline bool all_finite(const ChunkScales<S>& chunk, int blocks) {
  BitLanes largest = {};
  for (int b = 0; b < blocks; b += lane_count) {
    largest = higher_of<BitLanes>(largest, load_vector<BitLanes>(chunk.amax + b));
  }
  std::uint32_t lanes[lane_count];
  store_vector(lanes, largest);
  std::uint32_t amax = 0;
  for (const std::uint32_t lane : lanes) amax = higher_of(amax, lane);
  return float32::is_finite(amax);
}

}  // namespace
}  // namespace mxkern::cpu
