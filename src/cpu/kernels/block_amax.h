// cpu/kernels/block_amax.h: the largest magnitude of each block of a line.
// Only files in cpu/instances/ may include it.
#pragma once

#include <type_traits>
#include <utility>

#include "cpu/kernels/lanes_memory.h"

namespace mxkern::cpu {
namespace {

using LaneNumbers = std::make_index_sequence<lane_count>;

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
    for (int i = 0; i < block; i += 2 * lane_count) {
      const auto pairs = load_vector<BitLanes>(x + i);
      folded = higher_of<BitLanes>(folded, pairs & 0x7FFF0000u);
      folded = higher_of<BitLanes>(folded, pairs << 16 & 0x7FFF0000u);
    }
  } else {
    const auto halves = load_vector<HalfLanes>(x);
    folded = __builtin_convertvector(halves, BitLanes) << 16 & 0x7FFF0000u;
  }
  return folded;
}

// The float32 magnitude bits behind those that fold_block compares.
template <class T>
[[gnu::always_inline]] inline std::uint32_t float_magnitude(std::uint32_t bits) {
  if constexpr (sizeof(T) == 4) {
    return bits;
  } else {
    return bits_of(to_float(T{static_cast<std::uint16_t>(bits >> 16)}));
  }
}

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
      folded[i / 2] = join<stride>(folded[i], folded[i + 1], LaneNumbers{});
    }
    return reduce_each<stride * 2>(folded);
  }
}

[[gnu::always_inline]] inline std::uint32_t largest_lane(BitLanes lanes) {
  std::uint32_t memory[lane_count];
  store_vector(memory, lanes);
  std::uint32_t largest = 0;
  for (const std::uint32_t lane : memory) largest = higher_of(largest, lane);
  return largest;
}

// amax[b] = the larger of itself and the float32 magnitude bits of block b of the line; what is not
// finite has the largest bits. The last block may be short.
template <class T, int block>
void block_amax(const T* x, std::int64_t elements, std::uint32_t* amax) {
  constexpr int group = lane_count * block;
  std::int64_t i = 0;
  for (; i + group <= elements; i += group, amax += lane_count) {
    BitLanes folded[lane_count];
    for (int b = 0; b < lane_count; ++b) folded[b] = fold_block<T, block>(x + i + b * block);
    const BitLanes magnitudes = float_magnitudes<T>(reduce_each(folded));
    store_vector(amax, higher_of<BitLanes>(magnitudes, load_vector<BitLanes>(amax)));
  }
  for (; i + block <= elements; i += block, ++amax) {
    const std::uint32_t largest = largest_lane(fold_block<T, block>(x + i));
    *amax = higher_of(*amax, float_magnitude<T>(largest));
  }
  for (; i < elements; ++i) {
    *amax = higher_of(*amax, bits_of(to_float(x[i])) & float32::magnitude_mask);
  }
}

}  // namespace
}  // namespace mxkern::cpu
