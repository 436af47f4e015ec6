// tests/tensor/scale_layout_test.cc: where scales lie, against the formula and as a bijection.
#include "mxkern/tensor/scale_layout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/support/random_bits.h"

namespace mxkern {
namespace {

std::int64_t tiles_across(std::int64_t blocks) { return (blocks + 3) / 4; }

// The formula as cuBLAS documents it, tile by tile and piece by piece.
std::int64_t swizzled_offset(std::int64_t blocks, std::int64_t r, std::int64_t b) {
  const std::int64_t tile = (r / 128) * tiles_across(blocks) + b / 4;
  return tile * 512 + (r % 32) * 16 + ((r % 128) / 32) * 4 + b % 4;
}

const std::vector<std::int64_t> row_counts = {0, 1, 31, 32, 33, 127, 128, 129, 200, 256, 385};
const std::vector<std::int64_t> block_counts = {0, 1, 3, 4, 5, 8, 13};

TEST(ScaleIndexTest, SwizzledOffsetIsTheFormula) {
  for (std::int64_t rows : row_counts) {
    for (std::int64_t blocks : block_counts) {
      const ScaleIndex index{rows, blocks, ScaleLayout::swizzled};
      EXPECT_EQ(index.size(), (rows + 127) / 128 * 128 * tiles_across(blocks) * 4)
          << rows << " x " << blocks;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t b = 0; b < blocks; ++b) {
          ASSERT_EQ(index.offset(r, b), swizzled_offset(blocks, r, b))
              << rows << " x " << blocks << " at " << r << ", " << b;
        }
      }
    }
  }
}

TEST(ScaleIndexTest, RowMajorCountsAlongRows) {
  for (std::int64_t rows : row_counts) {
    for (std::int64_t blocks : block_counts) {
      const ScaleIndex index{rows, blocks, ScaleLayout::row_major};
      EXPECT_EQ(index.size(), rows * blocks);
      std::int64_t next = 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t b = 0; b < blocks; ++b) ASSERT_EQ(index.offset(r, b), next++);
      }
    }
  }
}

// Every byte below size() belongs to one coordinate: inside the matrix, or in its padding.
TEST(ScaleIndexTest, EveryByteHasOneCoordinate) {
  for (ScaleLayout layout : all_scale_layouts) {
    for (std::int64_t rows : row_counts) {
      for (std::int64_t blocks : block_counts) {
        const ScaleIndex index{rows, blocks, layout};
        const bool padded = layout == ScaleLayout::swizzled;
        std::int64_t inside = 0;
        for (std::int64_t offset = 0; offset < index.size(); ++offset) {
          const ScaleCoordinate at = index.coordinate(offset);
          ASSERT_EQ(index.offset(at.row, at.block), offset)
              << name_of(layout) << ", " << rows << " x " << blocks;
          ASSERT_LT(at.row, padded ? (rows + 127) / 128 * 128 : rows);
          ASSERT_LT(at.block, padded ? tiles_across(blocks) * 4 : blocks);
          if (at.row < rows && at.block < blocks) ++inside;
        }
        EXPECT_EQ(inside, rows * blocks) << name_of(layout) << ", " << rows << " x " << blocks;
      }
    }
  }
}

TEST(ScaleIndexTest, OffsetsBeyond32BitsInvert) {
  test::RandomBits random(26);
  const std::int64_t rows = (std::int64_t{1} << 31) + 77;
  const std::int64_t blocks = 4099;
  for (ScaleLayout layout : all_scale_layouts) {
    const ScaleIndex index{rows, blocks, layout};
    EXPECT_GT(index.size(), std::int64_t{1} << 42);
    for (int i = 0; i < 100'000; ++i) {
      const auto r = static_cast<std::int64_t>(random.next64() % static_cast<std::uint64_t>(rows));
      const std::int64_t b = random.between(0, 4098);
      const std::int64_t offset = index.offset(r, b);
      ASSERT_EQ(offset,
                layout == ScaleLayout::swizzled ? swizzled_offset(blocks, r, b) : r * blocks + b);
      const ScaleCoordinate at = index.coordinate(offset);
      ASSERT_EQ(at.row, r) << name_of(layout) << " offset " << offset;
      ASSERT_EQ(at.block, b) << name_of(layout) << " offset " << offset;
    }
    EXPECT_LT(index.offset(rows - 1, blocks - 1), index.size());
  }
}

TEST(ScaleLayoutTest, HasNames) {
  EXPECT_STREQ(name_of(ScaleLayout::row_major), "row_major");
  EXPECT_STREQ(name_of(ScaleLayout::swizzled), "swizzled");
}

}  // namespace
}  // namespace mxkern
