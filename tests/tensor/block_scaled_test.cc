// tests/tensor/block_scaled_test.cc: how many bytes the parts of a quantized tensor take.
#include "mxkern/tensor/block_scaled.h"

#include <gtest/gtest.h>

#include "tests/support/error_message.h"
#include "tests/support/format_list.h"

namespace mxkern {
namespace {

using test::error_message;

template <class Scheme>
class BlockScaledTest : public ::testing::Test {};
TYPED_TEST_SUITE(BlockScaledTest, test::SchemeTypes, test::NameOfType);

TYPED_TEST(BlockScaledTest, SizesFollowFromTheShape) {
  using S = TypeParam;
  constexpr std::int64_t block = S::block;
  for (std::int64_t batch : {0, 1, 3}) {
    for (std::int64_t rows : {0, 1, 127, 129}) {
      for (std::int64_t columns :
           {std::int64_t{0}, std::int64_t{1}, block - 1, block, block + 1, 5 * block}) {
        const Shape shape{batch, rows, columns};
        const std::int64_t blocks = (columns + block - 1) / block;
        const std::int64_t row_bytes =
            S::Format::bits == 8 ? columns : blocks * block * S::Format::bits / 8;
        const auto plain = BlockScaled::sizes(S::id, shape, ScaleLayout::row_major);
        EXPECT_EQ(plain.codes, batch * rows * row_bytes);
        EXPECT_EQ(plain.scales, batch * rows * blocks);
        EXPECT_EQ(plain.tensor_scale, S::has_tensor_scale ? 4 : 0);
        const auto swizzled = BlockScaled::sizes(S::id, shape, ScaleLayout::swizzled);
        EXPECT_EQ(swizzled.codes, plain.codes);
        EXPECT_EQ(swizzled.scales, batch * ((rows + 127) / 128 * 128) * ((blocks + 3) / 4 * 4))
            << S::name << ", " << batch << " x " << rows << " x " << columns;
        EXPECT_EQ(swizzled.tensor_scale, plain.tensor_scale);
      }
    }
  }
}

TYPED_TEST(BlockScaledTest, ScaleIndexIsThatOfOneMatrix) {
  BlockScaled q;
  q.scheme = TypeParam::id;
  q.shape = {3, 130, 5 * TypeParam::block + 1};
  q.scale_layout = ScaleLayout::swizzled;
  const ScaleIndex index = q.scale_index();
  EXPECT_EQ(index.rows, 130);
  EXPECT_EQ(index.blocks, 6);
  EXPECT_EQ(index.layout, ScaleLayout::swizzled);
  EXPECT_EQ(3 * index.size(), BlockScaled::sizes(q.scheme, q.shape, q.scale_layout).scales);
}

TEST(BlockScaledSizes, GoBeyond32Bits) {
  const Shape shape{4, 65536, 65536};
  const auto sizes = BlockScaled::sizes(Scheme::mxfp4, shape, ScaleLayout::swizzled);
  EXPECT_EQ(sizes.codes, std::int64_t{1} << 33);
  EXPECT_EQ(sizes.scales, std::int64_t{1} << 29);
}

TEST(BlockScaledSizes, RefuseNumbersThatNoEnumerationHas) {
  const Shape shape{1, 4, 64};
  const auto row_major = ScaleLayout::row_major;
  EXPECT_EQ(error_message([&] { BlockScaled::sizes(static_cast<Scheme>(99), shape, row_major); }),
            "BlockScaled::sizes: scheme is number 99; expected one of all_schemes");
  const auto layout = static_cast<ScaleLayout>(7);
  EXPECT_EQ(error_message([&] { BlockScaled::sizes(Scheme::mxfp4, shape, layout); }),
            "BlockScaled::sizes: layout is number 7; expected row_major or swizzled");
  static_assert(BlockScaled::sizes(Scheme::mxfp4, {1, 4, 64}, ScaleLayout::row_major).codes == 128);
}

}  // namespace
}  // namespace mxkern
