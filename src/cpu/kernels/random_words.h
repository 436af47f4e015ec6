// cpu/kernels/random_words.h: the random words of consecutive elements.
// Only files in cpu/instances/ may include it.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/core/philox.h"

namespace mxkern::cpu {
namespace {

// Whole counters at a time: the words of one serve four elements. The inner loop runs over
// independent counters, for the compiler to vectorize.
void random_words(std::uint64_t seed, std::uint64_t offset, std::uint64_t index, std::int64_t count,
                  std::uint32_t* words) {
  constexpr int counters = 16;
  constexpr int words_a_counter = 4;
  std::int64_t i = 0;
  for (; i < count && (index + i) % words_a_counter != 0; ++i) {
    words[i] = philox_word(seed, offset, index + i);
  }
  for (; i + counters * words_a_counter <= count; i += counters * words_a_counter) {
    for (int c = 0; c < counters; ++c) {
      const Philox4 four = philox4x32(seed, (index + i) / words_a_counter + c, offset);
      for (int w = 0; w < words_a_counter; ++w) words[i + c * words_a_counter + w] = four.lane[w];
    }
  }
  for (; i < count; ++i) words[i] = philox_word(seed, offset, index + i);
}

}  // namespace
}  // namespace mxkern::cpu
