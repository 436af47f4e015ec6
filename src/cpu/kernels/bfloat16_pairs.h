// cpu/kernels/bfloat16_pairs.h: bfloat16 two by two, as a 32-bit lane holds them: neither reading
// nor writing them needs to move anything from lane to lane.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/lanes_memory.h"

namespace mxkern::cpu {
namespace {

// lane_count even elements of a stretch of twice as many, and the odd ones.
struct FloatPairs {
  FloatLanes even;
  FloatLanes odd;
};

[[gnu::always_inline]] inline FloatPairs load_pairs(const bfloat16* source) {
  const auto pairs = load_vector<BitLanes>(source);
  return {float_of<BitLanes>(pairs << 16), float_of<BitLanes>(pairs & 0xFFFF0000u)};
}

// Cuts off the lower halves, which must be zero.
[[gnu::always_inline]] inline void store_exact_pairs(bfloat16* target, FloatPairs values) {
  store_vector(target, bits_of(values.even) >> 16 | (bits_of(values.odd) & 0xFFFF0000u));
}

// Rounds to nearest, ties to even; NaNs are with_one_nan.
[[gnu::always_inline]] inline void store_pairs(bfloat16* target, FloatPairs values) {
  const auto rounded = [](FloatLanes value) __attribute__((always_inline)) {
    const BitLanes bits = bits_of(value);
    return bits + 0x7FFFu + (bits >> 16 & 1u);
  };
  store_vector(target, rounded(values.even) >> 16 | (rounded(values.odd) & 0xFFFF0000u));
}

// One factor a block for each of the 2 * lane_count elements behind a register of pairs.
template <int block>
[[gnu::always_inline]] inline FloatLanes pair_factors(const float* factors) {
  if constexpr (block >= 2 * lane_count) {
    return broadcast<FloatLanes>(*factors);
  } else {
    static_assert(block == lane_count, "a register of pairs has at most two blocks");
    BitLanes upper = {};
    for (int i = lane_count / 2; i < lane_count; ++i) upper[i] = ~0u;
    return upper != 0u ? broadcast<FloatLanes>(factors[1]) : broadcast<FloatLanes>(factors[0]);
  }
}

}  // namespace
}  // namespace mxkern::cpu
