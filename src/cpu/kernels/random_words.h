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
  for (int round = 0; round < 10; ++round) {
    const Product first = multiply(words[0], 0xD2511F53u);
    const Product second = multiply(words[2], 0xCD9E8D57u);
    words[0] = second.high ^ words[1] ^ key_0;
    words[1] = second.low;
    words[2] = first.high ^ words[3] ^ key_1;
    words[3] = first.low;
    key_0 += 0x9E3779B9u;
    key_1 += 0xBB67AE85u;
  }
}

// Whole counters at a time: the words of one serve four elements.
void random_words(std::uint64_t seed, std::uint64_t offset, std::uint64_t index, std::int64_t count,
                  std::uint32_t* words) {
  constexpr int counter_words = 4;
  constexpr int step = lane_count * counter_words;
  std::int64_t i = 0;
  for (; i < count && (index + i) % counter_words != 0; ++i) {
    words[i] = philox_word(seed, offset, index + i);
  }
  for (; i + step <= count; i += step) {
    std::uint32_t low[lane_count];
    std::uint32_t high[lane_count];
    for (int lane = 0; lane < lane_count; ++lane) {
      const std::uint64_t counter = (index + i) / counter_words + lane;
      low[lane] = static_cast<std::uint32_t>(counter);
      high[lane] = static_cast<std::uint32_t>(counter >> 32);
    }
    BitLanes four[counter_words];
    philox_lanes(seed, load_vector<BitLanes>(low), load_vector<BitLanes>(high), offset, four);
    std::uint32_t separate[counter_words][lane_count];
    for (int w = 0; w < counter_words; ++w) store_vector(separate[w], four[w]);
    for (int lane = 0; lane < lane_count; ++lane) {
      for (int w = 0; w < counter_words; ++w) {
        words[i + lane * counter_words + w] = separate[w][lane];
      }
    }
  }
  for (; i < count; ++i) words[i] = philox_word(seed, offset, index + i);
}

}  // namespace
}  // namespace mxkern::cpu
