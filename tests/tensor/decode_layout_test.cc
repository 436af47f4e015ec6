// tests/tensor/decode_layout_test.cc: every bit of every code has one place, and is found there.
#include "mxkern/tensor/decode_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "mxkern/core/dtype.h"
#include "tests/support/random_bits.h"

namespace mxkern {
namespace {

template <class S>
class DecodeLayoutOf : public ::testing::Test {};

using Schemes = ::testing::Types<MxFp8E4M3, MxFp8E5M2, MxFp6E3M2, MxFp6E2M3, MxFp4, MxInt8, NvFp4>;
TYPED_TEST_SUITE(DecodeLayoutOf, Schemes);
static_assert(std::size(all_schemes) == 7, "the list above is all of them");
static_assert(DecodeLayout::of(Scheme::mxfp4, 32, 128).tile_bytes() == 2048 + 128);
static_assert(DecodeLayout::of(Scheme::mxfp6_e2m3, 33, 129).tiles_down() == 2);

TYPED_TEST(DecodeLayoutOf, SpreadsAndGathersEveryCode) {
  using Format = typename TypeParam::Format;
  for (std::uint32_t code = 0; code < (1u << Format::bits); ++code) {
    const std::uint32_t bits = spread_code<Format>(code);
    ASSERT_LT(bits, 0x10000u);
    ASSERT_EQ(gather_code<Format>(bits), code);
    if constexpr (!Format::is_integer) {
      // bfloat16 with the code's exponent field: the value times 2^(bias - 127).
      const float value = decode<Format>(static_cast<std::uint8_t>(code));
      if (!(value - value == 0.0f)) continue;
      const float scaled = to_float(bfloat16{static_cast<std::uint16_t>(bits)}) *
                           float32::exp2(64) * float32::exp2(127 - 64 - Format::bias);
      ASSERT_EQ(bits_of(scaled), bits_of(value)) << "code " << code;
    }
  }
}

// All pairs at once, so that none of them writes over another.
TYPED_TEST(DecodeLayoutOf, PairsComeBack) {
  using Format = typename TypeParam::Format;
  using Bits = DecodeBits<Format>;
  static_assert(Bits::words * 32 == Bits::pairs * 2 * Format::bits, "no bit is left over");
  test::RandomBits random(7);
  for (int round = 0; round < 1000; ++round) {
    std::uint32_t words[Bits::words] = {}, pairs[Bits::pairs];
    for (int i = 0; i < Bits::pairs; ++i) {
      const auto code = [&] {
        return static_cast<std::uint32_t>(random.between(0, (1 << Format::bits) - 1));
      };
      const std::uint32_t low = spread_code<Format>(code());
      pairs[i] = low | spread_code<Format>(code()) << 16;
      put_pair<Format>(words, i, pairs[i]);
    }
    for (int i = 0; i < Bits::pairs; ++i) ASSERT_EQ(get_pair<Format>(words, i), pairs[i]) << i;
  }
}

TYPED_TEST(DecodeLayoutOf, EveryElementHasOnePlace) {
  constexpr DecodeLayout layout = DecodeLayout::of(TypeParam::id, 32, 128);
  std::vector<int> taken(DecodeLayout::tile_blocks * 32 * 32);
  for (int row = 0; row < DecodeLayout::tile_rows; ++row) {
    for (int column = 0; column < DecodeLayout::tile_columns; ++column) {
      const DecodePlace place = layout.place(row, column);
      ASSERT_EQ(layout.row_of(place), row);
      ASSERT_EQ(layout.column_of(place), column);
      const int index = ((place.column_block * 32 + place.lane) * 16 + place.pair) * 2 + place.half;
      ASSERT_EQ(taken[static_cast<std::size_t>(index)]++, 0) << row << ", " << column;
    }
  }
}

// What a lane's registers of a step hold is what mma.m16n8k16 and wgmma.m64nNk16 want there of 16
// columns as they lie: pairs lane % 4 and lane % 4 + 4 of rows lane / 4 and 8 below.
TYPED_TEST(DecodeLayoutOf, StepsTakeColumnsAsTheyLie) {
  constexpr DecodeLayout layout = DecodeLayout::of(TypeParam::id, 32, 128);
  for (int lane = 0; lane < 32; ++lane) {
    for (int pair = 0; pair < 16; ++pair) {
      const int step = pair / 4 % 2, index = pair % 4;
      for (int half = 0; half < 2; ++half) {
        const DecodePlace place{1, lane, pair, half};
        EXPECT_EQ(layout.row_of(place), pair / 8 * 16 + index % 2 * 8 + lane / 4);
        EXPECT_EQ(layout.column_of(place), 32 + step * 16 + index / 2 * 8 + lane % 4 * 2 + half);
      }
    }
  }
}

// The scales that a lane needs for a tile: four rows each of four blocks, 16 bytes together.
TYPED_TEST(DecodeLayoutOf, ScalesOfALaneLieTogether) {
  constexpr DecodeLayout layout = DecodeLayout::of(TypeParam::id, 32, 128);
  for (int row = 0; row < 8; ++row) {
    for (int first = 0; first < layout.block_scales(); ++first) {
      const int begin = layout.scale_offset(row, first);
      EXPECT_EQ(begin % 16, 0);
      for (int i = 0; i < 16; ++i) {
        const int block = first + i / 4 * layout.block_scales();
        EXPECT_EQ(layout.scale_offset(row + i % 4 * 8, block), begin + i);
      }
    }
  }
}

// Words and scales fill a tile exactly.
TYPED_TEST(DecodeLayoutOf, BytesOfATileAreUsedOnce) {
  constexpr DecodeLayout layout = DecodeLayout::of(TypeParam::id, 32, 128);
  std::vector<int> used(static_cast<std::size_t>(layout.tile_bytes()));
  for (int block = 0; block < DecodeLayout::tile_blocks; ++block) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int word = 0; word < layout.words(); ++word) {
        const int offset = layout.word_offset(block, lane, word);
        ASSERT_EQ(offset % 4, 0);
        for (int i = 0; i < 4; ++i) ++used.at(static_cast<std::size_t>(offset + i));
      }
    }
  }
  for (int row = 0; row < 32; ++row) {
    for (int block = 0; block < 128 / TypeParam::block; ++block) {
      ++used.at(static_cast<std::size_t>(layout.scale_offset(row, block)));
    }
  }
  EXPECT_TRUE(std::all_of(used.begin(), used.end(), [](int n) { return n == 1; }));
  EXPECT_EQ(layout.tile_bytes() % DecodeLayout::alignment, 0);
}

TEST(DecodeLayout, Sizes) {
  const DecodeLayout layout = DecodeLayout::of(Scheme::mxfp8_e5m2, 33, 129);
  EXPECT_EQ(layout.tiles_down(), 2);
  EXPECT_EQ(layout.tiles_across(), 2);
  EXPECT_EQ(layout.tile_bytes(), 32 * 128 + 32 * 4);
  EXPECT_EQ(layout.tile_offset(1, 1), 3 * layout.tile_bytes());
  EXPECT_EQ(layout.kinds_offset(), 4 * layout.tile_bytes());
  EXPECT_EQ(layout.spreads_offset(), layout.kinds_offset() + 128);
  EXPECT_EQ(layout.size(), layout.spreads_offset() + 2 * 32 * 8);
  EXPECT_EQ(DecodeLayout::of(Scheme::nvfp4, 1, 0).size(), 128 + 256);
  EXPECT_EQ(DecodeLayout::of(Scheme::nvfp4, 0, 64).size(), 0);
}

}  // namespace
}  // namespace mxkern
