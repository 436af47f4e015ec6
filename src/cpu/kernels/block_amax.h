// cpu/kernels/block_amax.h: the largest magnitude of each block.
// Only files in cpu/instances/ may include it.
#pragma once

#include <type_traits>
#include <utility>

#include "cpu/kernels/lanes_memory.h"

namespace mxkern::cpu {
namespace {

// How many blocks are folded to a register: two of half as many lanes each, where a register has
// the elements of two.
template <class T, int block>
inline constexpr int folded_blocks = sizeof(T) == 2 && block == lane_count ? 2 : 1;

// The magnitude bits of so many blocks, folded to a register. 16-bit types keep theirs in the upper
// half of each lane: magnitudes of one type are ordered like their bits, so nothing is converted
// yet.
template <class T, int block>
[[gnu::always_inline]] inline BitLanes fold_blocks(const T* x) {
  BitLanes folded = {};
  if constexpr (sizeof(T) == 4) {
    for (int i = 0; i < block; i += lane_count) {
      const auto bits = load_vector<BitLanes>(x + i);
      folded = higher_of<BitLanes>(folded, bits & float32::magnitude_mask);
    }
  } else {
    // Without a sign: every instruction set has the maximum of these.
    using Halves = std::int16_t __attribute__((vector_size(4 * lane_count)));
    Halves largest = {};
    for (int i = 0; i < block * folded_blocks<T, block>; i += 2 * lane_count) {
      largest = higher_of<Halves>(largest, load_vector<Halves>(x + i) & std::int16_t{0x7FFF});
    }
    const auto pairs = BitLanes(largest);
    folded = higher_of<BitLanes>(pairs & 0xFFFF0000u, pairs << 16);
  }
  return folded;
}

// The same where only `count` elements exist.
template <class T, int block>
[[gnu::always_inline]] inline BitLanes fold_short_blocks(const T* x, std::int64_t count) {
  T padded[block * folded_blocks<T, block>] = {};
  copy_elements(padded, x, count);
  return fold_blocks<T, block>(padded);
}

// The float32 magnitude bits behind those that fold_blocks compares.
template <class T>
[[gnu::always_inline]] inline BitLanes float_magnitudes(BitLanes bits) {
  if constexpr (std::is_same_v<T, float16>) {
    const HalfLanes halves = __builtin_convertvector(bits >> 16, HalfLanes);
    float16 memory[lane_count];
    store_vector(memory, halves);
    return bits_of(load_lanes(memory));
  }
  return bits;
}

// Two registers become one: lanes with `stride` in their number get the maxima of b, the others
// those of a, each over the lane and its neighbour at that stride.
template <int stride, std::size_t... i>
[[gnu::always_inline]] inline BitLanes join(BitLanes a, BitLanes b, std::index_sequence<i...>) {
  return higher_of<BitLanes>(
      __builtin_shufflevector(a, b, ((i & stride) != 0 ? lane_count + i : i)...),
      __builtin_shufflevector(a, b, ((i & stride) != 0 ? lane_count + i - stride : i + stride)...));
}

// Lane b of the result is lane b / held of the part b % held of the register.
template <int held, std::size_t... b>
[[gnu::always_inline]] inline BitLanes in_order(BitLanes lanes, std::index_sequence<b...>) {
  return __builtin_shufflevector(lanes, lanes, (b / held + b % held * (lane_count / held))...);
}

// Lane i of the result is the largest lane of block i, of `held` blocks in each of the registers.
template <int held, int stride = 1>
[[gnu::always_inline]] inline BitLanes reduce_each(BitLanes* folded) {
  constexpr auto lanes = std::make_index_sequence<lane_count>{};
  constexpr int together = lane_count / held;
  if constexpr (stride == together) {
    return held == 1 ? folded[0] : in_order<held>(folded[0], lanes);
  } else {
    for (int i = 0; i < together / stride; i += 2) {
      folded[i / 2] = join<stride>(folded[i], folded[i + 1], lanes);
    }
    return reduce_each<held, stride * 2>(folded);
  }
}

}  // namespace
}  // namespace mxkern::cpu
