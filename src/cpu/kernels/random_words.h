// cpu/kernels/random_words.h: the random words of consecutive elements.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/transpose.h"
#include "mxkern/core/philox.h"

namespace mxkern::cpu {
namespace {

using WideLanes = std::uint64_t __attribute__((vector_size(4 * lane_count)));

// The products of the even lanes with a factor, each over two lanes.
[[gnu::always_inline]] inline WideLanes multiply_even(WideLanes lanes, std::uint32_t factor) {
#if defined(__AVX512F__)
  return WideLanes(_mm512_mul_epu32(__m512i(lanes), _mm512_set1_epi64(factor)));
#elif defined(__AVX2__)
  return WideLanes(_mm256_mul_epu32(__m256i(lanes), _mm256_set1_epi64x(factor)));
#else
  return (lanes & 0xFFFFFFFFu) * factor;
#endif
}

struct Product {
  BitLanes low;
  BitLanes high;
};

[[gnu::always_inline]] inline Product multiply(BitLanes lanes, std::uint32_t factor) {
  const WideLanes even = multiply_even(WideLanes(lanes), factor);
  const WideLanes odd = multiply_even(WideLanes(lanes) >> 32, factor);
  return {BitLanes((even & 0xFFFFFFFFu) | odd << 32),
          BitLanes(even >> 32 | (odd & 0xFFFFFFFF00000000u))};
}

// philox4x32 for lane_count counters: words[w] has word w of each.
[[gnu::always_inline]] inline void philox_lanes(std::uint64_t key, BitLanes counter_0,
                                                BitLanes counter_1, std::uint64_t offset,
                                                BitLanes (&words)[4]) {
  words[0] = counter_0;
  words[1] = counter_1;
  words[2] = broadcast<BitLanes>(static_cast<std::uint32_t>(offset));
  words[3] = broadcast<BitLanes>(static_cast<std::uint32_t>(offset >> 32));
  auto key_0 = static_cast<std::uint32_t>(key);
  auto key_1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < Philox::rounds; ++round) {
    const Product first = multiply(words[0], Philox::multiplier0);
    const Product second = multiply(words[2], Philox::multiplier1);
    words[0] = second.high ^ words[1] ^ key_0;
    words[1] = second.low;
    words[2] = first.high ^ words[3] ^ key_1;
    words[3] = first.low;
    key_0 += Philox::step0;
    key_1 += Philox::step1;
  }
}

// Merges the lower (0) or upper (1) halves of two registers, element by element.
template <int upper, class Vector, std::size_t... i>
[[gnu::always_inline]] inline Vector interleave(Vector a, Vector b, std::index_sequence<i...>) {
  constexpr std::size_t lanes = sizeof...(i);
  return __builtin_shufflevector(a, b, (upper * lanes / 2 + i / 2 + i % 2 * lanes)...);
}

// Stores the words of lane_count counters, counter after counter.
[[gnu::always_inline]] inline void store_words(const BitLanes (&words)[4], std::uint32_t* target) {
  using Narrow = std::make_index_sequence<lane_count>;
  using Wide = std::make_index_sequence<lane_count / 2>;
  const auto low = [](BitLanes a, BitLanes b) __attribute__((always_inline)) {
    return WideLanes(interleave<0>(a, b, Narrow{}));
  };
  const auto high = [](BitLanes a, BitLanes b) __attribute__((always_inline)) {
    return WideLanes(interleave<1>(a, b, Narrow{}));
  };
  const WideLanes first = low(words[0], words[1]);
  const WideLanes second = low(words[2], words[3]);
  const WideLanes third = high(words[0], words[1]);
  const WideLanes fourth = high(words[2], words[3]);
  store_vector(target, interleave<0>(first, second, Wide{}));
  store_vector(target + lane_count, interleave<1>(first, second, Wide{}));
  store_vector(target + 2 * lane_count, interleave<0>(third, fourth, Wide{}));
  store_vector(target + 3 * lane_count, interleave<1>(third, fourth, Wide{}));
}

// Whole counters at a time: the words of one serve four elements.
void random_words(std::uint64_t seed, std::uint64_t offset, std::uint64_t index, std::int64_t count,
                  std::uint32_t* words) {
  constexpr int counter_words = 4;
  constexpr std::int64_t step = lane_count * counter_words;
  // The first counter may begin before the first element.
  const auto skipped = static_cast<std::int64_t>(index % counter_words);
  std::uint64_t counter = index / counter_words;
  for (std::int64_t i = -skipped; i < count; i += step, counter += lane_count) {
    std::uint32_t low[lane_count];
    std::uint32_t high[lane_count];
    for (int lane = 0; lane < lane_count; ++lane) {
      low[lane] = static_cast<std::uint32_t>(counter + lane);
      high[lane] = static_cast<std::uint32_t>((counter + lane) >> 32);
    }
    BitLanes four[counter_words];
    philox_lanes(seed, load_vector<BitLanes>(low), load_vector<BitLanes>(high), offset, four);
    if (i >= 0 && i + step <= count) {
      store_words(four, words + i);
    } else {
      std::uint32_t some[step];
      store_words(four, some);
      const std::int64_t begin = higher_of<std::int64_t>(i, 0);
      copy_elements(words + begin, some + (begin - i), lower_of(i + step, count) - begin);
    }
  }
}

}  // namespace
}  // namespace mxkern::cpu
