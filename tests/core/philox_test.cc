// tests/core/philox_test.cc: Philox4x32-10 against published vectors and a plain implementation.
#include "mxkern/core/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/support/random_bits.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using Words4 = std::array<std::uint32_t, 4>;

struct KnownAnswer {
  Words4 counter;
  std::array<std::uint32_t, 2> key;
  Words4 words;
};

// The philox4x32-10 vectors of the generator's authors (Random123, kat_vectors): zeros, ones, and
// the digits of pi.
constexpr KnownAnswer known_answers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}},
    {{0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF},
     {0xFFFFFFFF, 0xFFFFFFFF},
     {0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}},
    {{0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344},
     {0xA4093822, 0x299F31D0},
     {0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}},
};

std::uint64_t join(std::uint32_t low, std::uint32_t high) {
  return std::uint64_t{high} << 32 | low;
}

TEST(Philox, GivesThePublishedAnswers) {
  for (const KnownAnswer& known : known_answers) {
    const Philox4 got =
        philox4x32(join(known.key[0], known.key[1]), join(known.counter[0], known.counter[1]),
                   join(known.counter[2], known.counter[3]));
    for (int lane = 0; lane < 4; ++lane) {
      EXPECT_EQ(got.lane[lane], known.words[lane])
          << "lane " << lane << ": got " << test::show_bits(got.lane[lane]) << ", want "
          << test::show_bits(known.words[lane]);
    }
  }
}

// One round as the paper draws it: two 32 x 32 bit products, halves crossed over, keys mixed in.
Words4 slow_round(const Words4& c, std::uint32_t k0, std::uint32_t k1) {
  const unsigned __int128 left = static_cast<unsigned __int128>(0xD2511F53u) * c[0];
  const unsigned __int128 right = static_cast<unsigned __int128>(0xCD9E8D57u) * c[2];
  const auto high = [](unsigned __int128 p) { return static_cast<std::uint32_t>(p >> 32); };
  const auto low = [](unsigned __int128 p) { return static_cast<std::uint32_t>(p); };
  return {high(right) ^ c[1] ^ k0, low(right), high(left) ^ c[3] ^ k1, low(left)};
}

TEST(Philox, EqualsTenPlainRoundsOnRandomInputs) {
  test::RandomBits random(3);
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t key = random.next64();
    const std::uint64_t low = random.next64();
    const std::uint64_t high = random.next64();
    Words4 want = {static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
                   static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)};
    for (std::uint64_t round = 0; round < 10; ++round) {
      want = slow_round(want, static_cast<std::uint32_t>(key + round * 0x9E3779B9u),
                        static_cast<std::uint32_t>((key >> 32) + round * 0xBB67AE85u));
    }
    const Philox4 got = philox4x32(key, low, high);
    for (int lane = 0; lane < 4; ++lane) {
      ASSERT_EQ(got.lane[lane], want[lane]) << "key " << key << ", lane " << lane;
    }
  }
}

TEST(PhiloxWord, TakesLaneIndexModuloFourOfCounterIndexOverFour) {
  test::RandomBits random(4);
  for (int i = 0; i < 1'000; ++i) {
    const std::uint64_t seed = random.next64();
    const std::uint64_t offset = random.next64();
    const std::uint64_t group = random.next64() >> 2;
    const Philox4 words = philox4x32(seed, group, offset);
    for (std::uint64_t lane = 0; lane < 4; ++lane) {
      ASSERT_EQ(philox_word(seed, offset, group * 4 + lane), words.lane[lane])
          << "seed " << seed << ", offset " << offset << ", index " << group * 4 + lane;
    }
  }
}

// Each bit of the words of consecutive elements is set half of the time.
TEST(PhiloxWord, BitsAreBalanced) {
  constexpr int count = 1 << 16;
  std::array<int, 32> ones{};
  for (int index = 0; index < count; ++index) {
    const std::uint32_t word = philox_word(42, 7, static_cast<std::uint64_t>(index));
    for (int bit = 0; bit < 32; ++bit) ones[bit] += static_cast<int>(word >> bit & 1u);
  }
  const double five_sigma = 5 * std::sqrt(count / 4.0);
  for (int bit = 0; bit < 32; ++bit) {
    EXPECT_NEAR(ones[bit], count / 2, five_sigma) << "bit " << bit;
  }
}

}  // namespace
}  // namespace mxkern
