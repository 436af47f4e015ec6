// cpu/kernels/block_amax.h: the largest magnitude of each block.
// Only files in cpu/instances/ may include it.
#pragma once

#include <type_traits>
#include <utility>

#include "cpu/kernels/lanes_memory.h"

namespace mxkern::cpu {
namespace {

// The magnitude bits of one block, folded to a register. 16-bit types keep theirs in the upper half
// of each lane: magnitudes of one type are ordered like their bits, so nothing is converted yet.
template <class T, int block>
[[gnu::always_inline]] inline BitLanes fold_block(const T* x) {
  BitLanes folded = {};
  if constexpr (sizeof(T) == 4) {
    for (int i = 0; i < block; i += lane_count) {
      const auto bits = load_vector<BitLanes>(x + i);
      folded = higher_of<BitLanes>(folded, bits & float32::magnitude_mask);
    }
  } else if constexpr (block >= 2 * lane_count) {
    // Without a sign: every instruction set has the maximum of these.
    using Halves = std::int16_t __attribute__((vector_size(4 * lane_count)));
    Halves largest = {};
    for (int i = 0; i < block; i += 2 * lane_count) {
      largest = higher_of<Halves>(largest, load_vector<Halves>(x + i) & std::int16_t{0x7FFF});
    }
    const auto pairs = BitLanes(largest);
    folded = higher_of<BitLanes>(pairs & 0xFFFF0000u, pairs << 16);
  } else {
    const auto halves = load_vector<HalfLanes>(x);
    folded = __builtin_convertvector(halves, BitLanes) << 16 & 0x7FFF0000u;
  }
  return folded;
}

// The same for a block of which only `count` elements exist.
template <class T, int block>
[[gnu::always_inline]] inline BitLanes fold_short_block(const T* x, std::int64_t count) {
  T padded[block] = {};
  copy_elements(padded, x, count);
  return fold_block<T, block>(padded);
}

// The float32 magnitude bits behind those that fold_block compares.
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

// Lane i of the result is the largest lane of folded[i].
template <int stride = 1>
[[gnu::always_inline]] inline BitLanes reduce_each(BitLanes* folded) {
  if constexpr (stride == lane_count) {
    return folded[0];
  } else {
    for (int i = 0; i < lane_count / stride; i += 2) {
      folded[i / 2] =
          join<stride>(folded[i], folded[i + 1], std::make_index_sequence<lane_count>{});
    }
    return reduce_each<stride * 2>(folded);
  }
}

}  // namespace
}  // namespace mxkern::cpu
