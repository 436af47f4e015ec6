// tests/core/philox_test.cc: Philox4x32-7 against published vectors and a plain implementation.
#include "mxkern/core/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>

#include "tests/support/random_bits.h"
#include "tests/support/show.h"
#include "tests/support/slow_philox.h"

namespace mxkern {
namespace {

using test::Words4;

struct KnownAnswer {
  int rounds;
  Words4 counter;
  std::array<std::uint32_t, 2> key;
  Words4 words;
};

// The philox4x32 vectors of the generator's authors (Random123, kat_vectors): zeros, ones, and the
// digits of pi. Those of ten rounds are for the plain implementation.
constexpr KnownAnswer known_answers[] = {
    {7, {0, 0, 0, 0}, {0, 0}, {0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48}},
    {7,
     {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF},
     {0xFFFFFFFF, 0xFFFFFFFF},
     {0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662}},
    {7,
     {0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344},
     {0xA4093822, 0x299F31D0},
     {0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A}},
    {10, {0, 0, 0, 0}, {0, 0}, {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}},
    {10,
     {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF},
     {0xFFFFFFFF, 0xFFFFFFFF},
     {0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}},
    {10,
     {0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344},
     {0xA4093822, 0x299F31D0},
     {0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}},
};

std::uint64_t join(std::uint32_t low, std::uint32_t high) {
  return std::uint64_t{high} << 32 | low;
}

void expect_words(const Words4& got, const Words4& want, const std::string& what) {
  for (std::size_t lane = 0; lane < 4; ++lane) {
    ASSERT_EQ(got[lane], want[lane])
        << what << ", lane " << lane << ": got " << test::show_bits(got[lane]) << ", want "
        << test::show_bits(want[lane]);
  }
}

Words4 philox(std::uint64_t key, std::uint64_t low, std::uint64_t high) {
  const Philox4 words = philox4x32(key, low, high);
  return {words.lane[0], words.lane[1], words.lane[2], words.lane[3]};
}

TEST(Philox, GivesThePublishedAnswers) {
  for (const KnownAnswer& known : known_answers) {
    const std::uint64_t key = join(known.key[0], known.key[1]);
    const std::uint64_t low = join(known.counter[0], known.counter[1]);
    const std::uint64_t high = join(known.counter[2], known.counter[3]);
    const std::string what = std::to_string(known.rounds) + " rounds, key " + std::to_string(key);
    expect_words(test::slow_philox(known.rounds, key, low, high), known.words, "plain, " + what);
    if (known.rounds == Philox::rounds) expect_words(philox(key, low, high), known.words, what);
  }
  EXPECT_EQ(Philox::rounds, 7);
}

TEST(Philox, EqualsSevenPlainRoundsOnRandomInputs) {
  test::RandomBits random(3);
  for (int i = 0; i < 20'000 && !HasFatalFailure(); ++i) {
    const std::uint64_t key = random.next64();
    const std::uint64_t low = random.next64();
    const std::uint64_t high = random.next64();
    expect_words(philox(key, low, high), test::slow_philox(7, key, low, high),
                 "key " + std::to_string(key));
  }
}

TEST(PhiloxWord, IsHalfALaneOfCounterIndexOverEight) {
  test::RandomBits random(4);
  for (int i = 0; i < 8'000; ++i) {
    const std::uint64_t seed = random.next64();
    const std::uint64_t offset = random.next64();
    const std::uint64_t index = random.next64();
    ASSERT_EQ(philox_word(seed, offset, index), test::slow_random_word(seed, offset, index))
        << "seed " << seed << ", offset " << offset << ", index " << index;
  }
}

// Each bit of the words of consecutive elements is set half of the time.
TEST(PhiloxWord, BitsAreBalanced) {
  constexpr int count = 1 << 16;
  std::array<int, 16> ones{};
  for (int index = 0; index < count; ++index) {
    const std::uint32_t word = philox_word(42, 7, static_cast<std::uint64_t>(index));
    for (int bit = 0; bit < 16; ++bit) ones[bit] += static_cast<int>(word >> bit & 1u);
  }
  const double five_sigma = 5 * std::sqrt(count / 4.0);
  for (int bit = 0; bit < 16; ++bit) {
    EXPECT_NEAR(ones[bit], count / 2, five_sigma) << "bit " << bit;
  }
}

}  // namespace
}  // namespace mxkern
