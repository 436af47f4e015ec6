// tests/cpu/quantize/random_words_test.cc: the random words of a stretch of elements are those of
// each.
#include <gtest/gtest.h>

#include <vector>

#include "mxkern/core/philox.h"
#include "tests/support/kernel_tables.h"

namespace mxkern {
namespace {

using namespace test;

constexpr std::uint64_t seed = 0x123456789ABCDEFull;
constexpr std::uint64_t offset = 0xFEDCBA9876543210ull;

// Where the counter's upper half changes in between, and with the largest index there is.
TEST(CpuRandomWords, BelongToTheElements) {
  constexpr std::uint16_t untouched = 0xCDCDu;
  for (const cpu::InstructionSet set : available_instruction_sets()) {
    const cpu::KernelTable& kernels = cpu::kernels_for(set);
    for (const std::uint64_t index :
         {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{6}, (std::uint64_t{1} << 35) - 8,
          (std::uint64_t{1} << 35) - 29, (std::uint64_t{1} << 35) - 300, std::uint64_t{1} << 60,
          ~std::uint64_t{0} - 900}) {
      for (const std::size_t count :
           {1, 4, 7, 16, 31, 32, 33, 64, 101, 127, 128, 131, 259, 400, 777}) {
        std::vector<std::uint16_t> words(count + 1, untouched);
        kernels.random_words(seed, offset, index, static_cast<std::int64_t>(count), words.data());
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(words[i], philox_word(seed, offset, index + i))
              << name_of(set) << ", word " << i << " of " << count << " from " << index << " on";
        }
        EXPECT_EQ(words[count], untouched) << name_of(set) << ", " << count << " words";
      }
    }
  }
}

}  // namespace
}  // namespace mxkern
