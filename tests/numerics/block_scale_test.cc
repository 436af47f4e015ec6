// tests/numerics/block_scale_test.cc: one block's scale and an element's value, for every scheme.
#include "mxkern/numerics/block_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "tests/support/format_list.h"
#include "tests/support/random_bits.h"
#include "tests/support/show.h"
#include "tests/support/slow_codec.h"
#include "tests/support/slow_scale.h"

namespace mxkern {
namespace {

using test::show;

template <class Scheme>
class BlockScaleTest : public ::testing::Test {};
TYPED_TEST_SUITE(BlockScaleTest, test::SchemeTypes, test::NameOfType);

TYPED_TEST(BlockScaleTest, WhatIsNotFinitePoisons) {
  for (ScaleRule rule : all_scale_rules) {
    for (std::uint32_t amax : {0x7F800000u, 0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu}) {
      const BlockScale got = block_scale<TypeParam>(amax, rule, TensorScale::from_amax(1.0f));
      EXPECT_EQ(got.byte, TypeParam::has_tensor_scale ? 0x7F : 255) << test::show_bits(amax);
      EXPECT_EQ(got.multiplier, 0.0f) << test::show_bits(amax);
      EXPECT_TRUE(std::isnan(TypeParam::ScaleFormat::decode(got.byte)));
    }
  }
}

TYPED_TEST(BlockScaleTest, IsTheRuleOrTheRecipe) {
  test::RandomBits random(18);
  const TensorScale tensor = TensorScale::from_amax(3.7f);
  for (int i = 0; i < 20'000; ++i) {
    const float amax = std::fabs(float_of(random.float_bits(-126, i % 2 ? 127 : 1)));
    for (ScaleRule rule : all_scale_rules) {
      const BlockScale got = block_scale<TypeParam>(bits_of(amax), rule, tensor);
      if constexpr (TypeParam::has_tensor_scale) {
        const BlockScale want = nvfp4_block_scale(amax, tensor);
        ASSERT_EQ(got.byte, want.byte) << show(amax);
        ASSERT_EQ(got.multiplier, want.multiplier) << show(amax);
      } else {
        const int want = test::slow_e8m0_scale<typename TypeParam::Format>(amax, rule);
        ASSERT_EQ(got.byte, want) << name_of(rule) << " of " << show(amax);
        ASSERT_EQ(static_cast<double>(got.multiplier), std::ldexp(1.0, 127 - want)) << show(amax);
      }
    }
  }
}

// Under rceil no element of a block is worse than half a step of its own binade, or of the
// subnormals: nothing is clipped.
TYPED_TEST(BlockScaleTest, QuantizedElementsAreWithinHalfAStep) {
  using F = typename TypeParam::Format;
  test::RandomBits random(19);
  for (int i = 0; i < 50'000; ++i) {
    const float amax = std::fabs(float_of(random.float_bits(-60, 60)));
    const float x = random.between(0, 3) == 0
                        ? amax
                        : amax * std::ldexp(static_cast<float>(random.next() >> 8), -24);
    const TensorScale tensor = TensorScale::from_amax(amax);
    const BlockScale block = block_scale<TypeParam>(bits_of(amax), ScaleRule::rceil, tensor);
    const float scaled = x * block.multiplier;
    const std::uint8_t code = encode<F>(scaled);
    const double step =
        std::max(std::ldexp(1.0, std::ilogb(std::max(scaled, FLT_MIN)) - F::mantissa_bits),
                 test::published<F>.smallest_subnormal);
    // NVFP4's multiplier is rounded, so that its largest element may lie an ulp above 6.
    ASSERT_LE(std::fabs(test::slow_decode<F>(code) - scaled), step / 2)
        << TypeParam::name << ": " << show(x) << " in a block of amax " << show(amax);
  }
}

// Codes times E8M0 scales are exact in float32 wherever they do not overflow.
TYPED_TEST(BlockScaleTest, ElementValueIsExactOrRoundedOnce) {
  using F = typename TypeParam::Format;
  const float tensor_scale = TypeParam::has_tensor_scale ? 0.37f : 1.0f;
  for (int code = 0; code < 1 << F::bits; ++code) {
    const float element = decode<F>(static_cast<std::uint8_t>(code));
    for (int byte = 0; byte < 256; ++byte) {
      const float scale = TypeParam::ScaleFormat::decode(static_cast<std::uint8_t>(byte));
      const float got = element_value<TypeParam>(element, scale, tensor_scale);
      const double exact = static_cast<double>(element) * scale;
      if (std::isnan(exact)) {
        ASSERT_EQ(bits_of(got), float32::nan_bits)
            << code << " under scale " << byte << ": " << show(got);
        continue;
      }
      const auto want = static_cast<float>(exact * tensor_scale);
      ASSERT_EQ(bits_of(got), bits_of(want))
          << TypeParam::name << " code " << code << " under scale " << byte << ": got " << show(got)
          << ", want " << show(want);
      if (!TypeParam::has_tensor_scale && std::isfinite(got)) {
        ASSERT_EQ(static_cast<double>(got), exact) << code << " under scale " << byte;
      }
    }
  }
}

}  // namespace
}  // namespace mxkern
