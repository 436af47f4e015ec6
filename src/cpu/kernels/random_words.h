// cpu/kernels/random_words.h: the random words of consecutive elements.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/transpose.h"
#include "mxkern/core/philox.h"

namespace mxkern::cpu {
namespace {

// A word in the lower half of each lane; what the upper halves hold does not matter.
using WideLanes = std::uint64_t __attribute__((vector_size(4 * lane_count)));

inline constexpr int wide_lane_count = lane_count / 2;

// The products of the words with a factor, over whole lanes.
[[gnu::always_inline]] inline WideLanes multiply_words(WideLanes words, std::uint32_t factor) {
#if defined(__AVX512F__)
  return WideLanes(_mm512_mul_epu32(__m512i(words), _mm512_set1_epi64(factor)));
#elif defined(__AVX2__)
  return WideLanes(_mm256_mul_epu32(__m256i(words), _mm256_set1_epi64x(factor)));
#elif defined(__SSE2__)
  return WideLanes(_mm_mul_epu32(__m128i(words), _mm_set1_epi64x(factor)));
#else
  return (words & 0xFFFFFFFFu) * factor;
#endif
}

template <std::size_t... i>
[[gnu::always_inline]] inline WideLanes count_up(std::index_sequence<i...>) {
  return WideLanes{i...};
}

// The words of wide_lane_count counters: of each, word w is in register w.
using CounterWords = WideLanes[4];

// philox4x32 for counters from one on. Each round waits for the one before, so that several
// registers of counters go side by side.
template <int registers>
[[gnu::always_inline]] inline void philox_lanes(std::uint64_t key, std::uint64_t counter,
                                                std::uint64_t offset,
                                                CounterWords (&words)[registers]) {
  for (CounterWords& own : words) {
    const WideLanes counters = count_up(std::make_index_sequence<wide_lane_count>{}) + counter;
    own[0] = counters;
    own[1] = counters >> 32;
    own[2] = WideLanes{} + offset;
    own[3] = WideLanes{} + (offset >> 32);
    counter += wide_lane_count;
  }
  auto key_0 = static_cast<std::uint32_t>(key);
  auto key_1 = static_cast<std::uint32_t>(key >> 32);
#pragma GCC unroll 7
  for (int round = 0; round < Philox::rounds; ++round) {
    for (CounterWords& own : words) {
      const WideLanes first = multiply_words(own[0], Philox::multiplier0);
      const WideLanes second = multiply_words(own[2], Philox::multiplier1);
      own[0] = second >> 32 ^ own[1] ^ std::uint64_t{key_0};
      own[1] = second;
      own[2] = first >> 32 ^ own[3] ^ std::uint64_t{key_1};
      own[3] = first;
    }
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

// Stores the words of wide_lane_count counters, counter after counter.
[[gnu::always_inline]] inline void store_words(const CounterWords& words, std::uint16_t* target) {
  using Each = std::make_index_sequence<wide_lane_count>;
  const WideLanes low = (words[0] & 0xFFFFFFFFu) | words[1] << 32;
  const WideLanes high = (words[2] & 0xFFFFFFFFu) | words[3] << 32;
  store_vector(target, interleave<0>(low, high, Each{}));
  store_vector(target + 2 * lane_count, interleave<1>(low, high, Each{}));
}

// Whole counters at a time: the words of one serve eight elements.
void random_words(std::uint64_t seed, std::uint64_t offset, std::uint64_t index, std::int64_t count,
                  std::uint16_t* words) {
  constexpr std::int64_t step = wide_lane_count * Philox::elements;
  constexpr int registers = lane_count == 16 ? 4 : 2;  // what there are registers for
  // The first counter may begin before the first element.
  const auto skipped = static_cast<std::int64_t>(index % Philox::elements);
  std::uint64_t counter = index / Philox::elements;
  std::int64_t i = -skipped;
  while (i < count) {
    if (i >= 0 && i + registers * step <= count) {
      CounterWords several[registers];
      philox_lanes(seed, counter, offset, several);
      for (const CounterWords& own : several) {
        store_words(own, words + i);
        i += step;
      }
      counter += registers * wide_lane_count;
      continue;
    }
    CounterWords four[1];
    philox_lanes(seed, counter, offset, four);
    if (i >= 0 && i + step <= count) {
      store_words(four[0], words + i);
    } else {
      std::uint16_t some[step];
      store_words(four[0], some);
      const std::int64_t begin = higher_of<std::int64_t>(i, 0);
      copy_elements(words + begin, some + (begin - i), lower_of(i + step, count) - begin);
    }
    i += step;
    counter += wide_lane_count;
  }
}

}  // namespace
}  // namespace mxkern::cpu
