// tests/ops/scales_test.cc: block scales from one layout to the other.
#include "mxkern/scales.h"

#include <gtest/gtest.h>

#include "mxkern/core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/random_bits.h"
#include "tests/support/show.h"
#include "tests/support/tensor.h"

namespace mxkern {
namespace {

using namespace test;

TEST(Scales, EveryScaleGoesWhereTheIndexSays) {
  RandomBits random(4);
  for (const std::int64_t batch : {0, 1, 3}) {
    for (const std::int64_t rows : {0, 1, 31, 32, 33, 127, 128, 129, 300}) {
      for (const std::int64_t blocks : {0, 1, 3, 4, 5, 8, 130}) {
        const ScaleIndex plain{rows, blocks, ScaleLayout::row_major};
        const ScaleIndex tiled{rows, blocks, ScaleLayout::swizzled};
        GuardedBytes source(batch * plain.size());
        for (std::int64_t i = 0; i < source.size(); ++i)
          source.data()[i] = static_cast<std::uint8_t>(random.next() | 1u);
        std::vector<std::uint8_t> wanted(static_cast<std::size_t>(batch * tiled.size()));
        for (std::int64_t b = 0; b < batch; ++b) {
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t k = 0; k < blocks; ++k) {
              const std::int64_t at = b * tiled.size() + tiled.offset(r, k);
              wanted[static_cast<std::size_t>(at)] =
                  source.data()[b * plain.size() + plain.offset(r, k)];
            }
          }
        }
        GuardedBytes swizzled(batch * tiled.size());
        swizzle_scales(source.data(), swizzled.data(), batch, rows, blocks);
        GuardedBytes back(batch * plain.size());
        unswizzle_scales(swizzled.data(), back.data(), batch, rows, blocks);
        for (std::int64_t i = 0; i < swizzled.size(); ++i) {
          ASSERT_EQ(swizzled.data()[i], wanted[static_cast<std::size_t>(i)])
              << "[" << batch << ", " << rows << ", " << blocks << "], byte " << i;
        }
        for (std::int64_t i = 0; i < back.size(); ++i) {
          ASSERT_EQ(back.data()[i], source.data()[i])
              << "[" << batch << ", " << rows << ", " << blocks << "], byte " << i;
        }
        ASSERT_TRUE(swizzled.margins_are_intact() && back.margins_are_intact());
      }
    }
  }
}

TEST(Scales, RefuseWrongArguments) {
  std::uint8_t bytes[512] = {};
  EXPECT_EQ(error_message([&] { swizzle_scales(nullptr, bytes, 1, 2, 3); }),
            "swizzle_scales: row_major is null; expected memory for 6 bytes");
  EXPECT_EQ(error_message([&] { unswizzle_scales(nullptr, bytes, 1, 2, 3); }),
            "unswizzle_scales: swizzled is null; expected memory for 512 bytes");
  EXPECT_EQ(error_message([&] { swizzle_scales(bytes, bytes, 1, -2, 3); }),
            "swizzle_scales: scales has shape [1, -2, 3]; expected no negative extent");
}

}  // namespace
}  // namespace mxkern
