// tests/tensor/packing_test.cc: packed codes bit by bit, round trips over all groups, row sizes.
#include "mxkern/tensor/packing.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/support/format_list.h"
#include "tests/support/random_bits.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

// Bit j of code i is bit Bits * i + j of the row, counted from the lowest bit of its first byte.
template <int Bits>
std::vector<std::uint8_t> pack_bit_by_bit(const std::vector<std::uint8_t>& codes) {
  std::vector<std::uint8_t> bytes((codes.size() * Bits + 7) / 8);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    for (int j = 0; j < Bits; ++j) {
      const std::size_t position = i * Bits + static_cast<std::size_t>(j);
      bytes[position / 8] |= static_cast<std::uint8_t>((codes[i] >> j & 1) << position % 8);
    }
  }
  return bytes;
}

template <class Scheme>
class PackingTest : public ::testing::Test {};
TYPED_TEST_SUITE(PackingTest, test::SchemeTypes, test::NameOfType);

TYPED_TEST(PackingTest, BlocksHaveTheWrittenLayoutAndUnpackAgain) {
  constexpr int bits = TypeParam::Format::bits;
  constexpr int block = TypeParam::block;
  test::RandomBits random(25);
  for (int repeat = 0; repeat < 1'000; ++repeat) {
    std::vector<std::uint8_t> codes(block);
    for (std::uint8_t& code : codes) {
      code = static_cast<std::uint8_t>(random.between(0, (1 << bits) - 1));
    }
    std::vector<std::uint8_t> bytes(TypeParam::block_bytes);
    pack<bits>(codes.data(), block, bytes.data());
    ASSERT_EQ(bytes, pack_bit_by_bit<bits>(codes)) << TypeParam::name;
    std::vector<std::uint8_t> back(block);
    unpack<bits>(bytes.data(), block, back.data());
    ASSERT_EQ(back, codes) << TypeParam::name;
  }
}

TYPED_TEST(PackingTest, RowsOfPackedCodesArePaddedToABlock) {
  constexpr int block = TypeParam::block;
  for (int columns : {0, 1, block - 1, block, block + 1, 3 * block - 1, 1000}) {
    int padded = columns;
    if (TypeParam::Format::bits < 8) {
      while (padded % block != 0) ++padded;
    }
    const int want = padded * TypeParam::Format::bits / 8;
    EXPECT_EQ(code_row_bytes<TypeParam>(columns), want) << TypeParam::name << ", " << columns;
    EXPECT_EQ(code_row_bytes(TypeParam::id, columns), want) << TypeParam::name << ", " << columns;
  }
  const std::int64_t large = std::int64_t{1} << 33;
  EXPECT_EQ(code_row_bytes<TypeParam>(large), large / 8 * TypeParam::Format::bits);
}

TEST(PackGroupTest, FourBitPairsHaveTheFirstInTheLowNibble) {
  for (int first = 0; first < 16; ++first) {
    for (int second = 0; second < 16; ++second) {
      const std::uint8_t codes[2] = {static_cast<std::uint8_t>(first),
                                     static_cast<std::uint8_t>(second)};
      std::uint8_t byte = 0xFF;
      pack_group<4>(codes, &byte);
      ASSERT_EQ(byte, first | second << 4);
      std::uint8_t back[2] = {0xFF, 0xFF};
      unpack_group<4>(&byte, back);
      ASSERT_EQ(back[0], first);
      ASSERT_EQ(back[1], second);
    }
  }
}

TEST(PackGroupTest, SixBitGroupsAreALittleEndianWordOfThreeBytes) {
  for (std::uint32_t word = 0; word < 1u << 24; ++word) {
    const std::uint8_t codes[4] = {
        static_cast<std::uint8_t>(word & 63), static_cast<std::uint8_t>(word >> 6 & 63),
        static_cast<std::uint8_t>(word >> 12 & 63), static_cast<std::uint8_t>(word >> 18)};
    std::uint8_t bytes[3];
    pack_group<6>(codes, bytes);
    const std::uint32_t joined = bytes[0] | bytes[1] << 8 | bytes[2] << 16;
    std::uint8_t back[4];
    unpack_group<6>(bytes, back);
    if (joined != word || std::memcmp(back, codes, 4) != 0) {
      FAIL() << "codes of " << test::show_bits(word) << " became " << test::show_bits(joined);
    }
  }
}

TEST(PackGroupTest, EightBitCodesAreThemselves) {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    std::uint8_t packed = 0;
    std::uint8_t back = 0;
    pack_group<8>(&byte, &packed);
    unpack_group<8>(&packed, &back);
    EXPECT_EQ(packed, code);
    EXPECT_EQ(back, code);
  }
}

}  // namespace
}  // namespace mxkern
