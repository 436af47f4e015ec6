// tests/numerics/tensor_scale_test.cc: the two levels of NVFP4, against the recipe step by step.
#include "mxkern/numerics/tensor_scale.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <vector>

#include "tests/support/random_bits.h"
#include "tests/support/show.h"
#include "tests/support/slow_codec.h"

namespace mxkern {
namespace {

using test::show;
using test::show_code;

// The recipe as it is written. The volatile variables keep each operation, its float32 rounding
// and its order; E4M3 codes come from the search in double precision.
struct Recipe {
  volatile float s_enc = 1.0f;
  volatile float s_dec = 1.0f;
  volatile float stored = 1.0f;

  explicit Recipe(float a) {
    if (a == 0.0f) return;
    const volatile float numerator = 2688.0f;
    volatile float quotient = numerator / a;
    s_enc = quotient > FLT_MAX ? FLT_MAX : quotient;
    const volatile float one = 1.0f;
    s_dec = one / s_enc;
    stored = a / numerator;
  }

  float inverse(std::uint8_t byte) const {
    volatile float scale = static_cast<float>(test::slow_decode<E4M3>(byte));
    volatile float product = scale * s_dec;
    volatile float quotient = 1.0f / product;
    return quotient > FLT_MAX ? FLT_MAX : quotient;
  }

  std::uint8_t block(float amax) const {
    volatile float sixth = static_cast<float>(1.0 / 6.0);
    volatile float k = s_enc * sixth;
    volatile float ratio = amax * k;
    return test::slow_encode<E4M3>(ratio > FLT_MAX ? FLT_MAX : ratio);
  }

  float base(float amax) const {
    volatile float sixth_of_amax = amax / 6.0f;
    volatile float product = sixth_of_amax * s_enc;
    return product > 448.0f ? 448.0f : product;
  }
};

void expect_bits(const char* what, float got, float want, float a, float amax) {
  EXPECT_EQ(bits_of(got), bits_of(want))
      << what << " for A = " << show(a) << ", block amax " << show(amax) << ": got " << show(got)
      << ", want " << show(want);
}

void expect_block(const char* what, const BlockScale& got, std::uint8_t byte, const Recipe& recipe,
                  float a, float amax) {
  EXPECT_EQ(got.byte, byte) << what << " for A = " << show(a) << ", block amax " << show(amax)
                            << ": got " << show_code(got.byte) << ", want " << show_code(byte);
  expect_bits(what, got.multiplier, recipe.inverse(byte), a, amax);
}

void expect_recipe(float a, float amax) {
  const Recipe recipe(a);
  const TensorScale tensor = TensorScale::from_amax(a);
  expect_bits("encode", tensor.encode, recipe.s_enc, a, amax);
  expect_bits("decode", tensor.decode, recipe.s_dec, a, amax);
  expect_bits("stored", tensor.stored, recipe.stored, a, amax);
  expect_block("block scale", nvfp4_block_scale(amax, tensor), recipe.block(amax), recipe, a, amax);
  const FourOverSix two = nvfp4_four_over_six(amax, tensor);
  const float base = recipe.base(amax);
  volatile float larger = 1.5f * base;
  expect_block("scale of six", two.six, test::slow_encode<E4M3>(base), recipe, a, amax);
  expect_block("scale of four", two.four, test::slow_encode<E4M3>(larger), recipe, a, amax);
}

const std::vector<float>& extreme_amaxes() {
  static const std::vector<float> values = {
      0.0f,     FLT_TRUE_MIN, 2 * FLT_TRUE_MIN, 0x1p-140f,  0x1p-127f,
      FLT_MIN,  0x1.5p-117f,  0x1p-9f,          1.0f,       6.0f,
      2687.0f,  2688.0f,      2688.0002f,       0x1.fp100f, 1e30f,
      0x1p127f, FLT_MAX};
  return values;
}

TEST(TensorScaleTest, FollowsTheRecipeAtTheExtremes) {
  // All pairs: also a block amax above A, as with a calibrated A that is too small.
  for (float a : extreme_amaxes()) {
    for (float amax : extreme_amaxes()) expect_recipe(a, amax);
  }
}

TEST(TensorScaleTest, FollowsTheRecipeOnRandomPairs) {
  test::RandomBits random(15);
  for (int i = 0; i < 200'000 && !::testing::Test::HasFailure(); ++i) {
    const int exponent = random.between(-126, 127);
    const float a = std::fabs(float_of(random.float_bits(exponent, exponent)));
    const int reach = exponent - 30 < -126 ? -126 : exponent - 30;
    expect_recipe(a, std::fabs(float_of(random.float_bits(reach, exponent))));
  }
}

TEST(TensorScaleTest, AnAllZeroTensorHasScaleOne) {
  const TensorScale tensor = TensorScale::from_amax(0.0f);
  EXPECT_EQ(tensor.encode, 1.0f);
  EXPECT_EQ(tensor.decode, 1.0f);
  EXPECT_EQ(tensor.stored, 1.0f);
  const BlockScale block = nvfp4_block_scale(0.0f, tensor);
  EXPECT_EQ(block.byte, 0);
  EXPECT_EQ(block.multiplier, FLT_MAX);
}

TEST(TensorScaleTest, TheLargestBlockOfATensorUsesTheWholeRange) {
  test::RandomBits random(16);
  for (int i = 0; i < 10'000; ++i) {
    const float a = std::fabs(float_of(random.float_bits(-100, 127)));
    const BlockScale block = nvfp4_block_scale(a, TensorScale::from_amax(a));
    ASSERT_EQ(block.byte, UE4M3::max_byte) << show(a);
    ASSERT_EQ(encode<E2M1>(a * block.multiplier), E2M1::max_code) << show(a);
  }
}

// A block far below the tensor's amax: its scale is 0, its elements are 6 codes that decode to 0.
TEST(TensorScaleTest, AScaleThatRoundsToZeroKeepsSignsAndDecodesToZero) {
  const TensorScale tensor = TensorScale::from_amax(1000.0f);
  const float tiny = 1e-4f;
  const BlockScale block = nvfp4_block_scale(tiny, tensor);
  EXPECT_EQ(block.byte, 0);
  EXPECT_EQ(block.multiplier, FLT_MAX);
  EXPECT_EQ(encode<E2M1>(tiny * block.multiplier), 0x7);
  EXPECT_EQ(encode<E2M1>(-tiny * block.multiplier), 0xF);
  EXPECT_EQ(encode<E2M1>(-0.0f * block.multiplier), 0x8);
  EXPECT_EQ(decode<E2M1>(0x7) * UE4M3::decode(block.byte) * tensor.stored, 0.0f);
}

TEST(TensorScaleTest, ABlockAboveAGivenAmaxSaturates) {
  const TensorScale tensor = TensorScale::from_amax(1.0f);
  const BlockScale block = nvfp4_block_scale(100.0f, tensor);
  EXPECT_EQ(block.byte, UE4M3::max_byte);
  EXPECT_EQ(encode<E2M1>(100.0f * block.multiplier), E2M1::max_code);
  EXPECT_EQ(encode<E2M1>(1.0f * block.multiplier), E2M1::max_code);
}

TEST(TensorScaleTest, AGivenDecodeMultiplierIsStoredAsItIs) {
  for (float multiplier : {FLT_TRUE_MIN, 0x1p-130f, 0.37f, 1.0f, 3.0f, FLT_MAX}) {
    const TensorScale tensor = TensorScale::from_decode_multiplier(multiplier);
    const volatile float one = 1.0f;
    volatile float inverse = one / multiplier;
    const float encode = inverse > FLT_MAX ? FLT_MAX : inverse;
    volatile float decode = one / encode;
    expect_bits("encode", tensor.encode, encode, multiplier, 0);
    expect_bits("decode", tensor.decode, decode, multiplier, 0);
    expect_bits("stored", tensor.stored, multiplier, multiplier, 0);
  }
}

TEST(TensorScaleTest, TheSignOfZeroDoesNotMatter) {
  for (const float zero : {0.0f, -0.0f}) {
    const TensorScale tensor = TensorScale::from_decode_multiplier(zero);
    expect_bits("encode", tensor.encode, FLT_MAX, zero, 0);
    expect_bits("stored", tensor.stored, 0.0f, zero, 0);
    EXPECT_EQ(nvfp4_block_scale(1.0f, tensor).byte, UE4M3::max_byte);
  }
}

TEST(FourOverSixTest, ScalesAreTheTensorsShareOfSixAndOfFour) {
  const TensorScale tensor = TensorScale::from_amax(2688.0f);  // encodes as it is
  const FourOverSix two = nvfp4_four_over_six(24.0f, tensor);
  EXPECT_EQ(UE4M3::decode(two.six.byte), 4.0f);
  EXPECT_EQ(UE4M3::decode(two.four.byte), 6.0f);
  EXPECT_EQ(encode<E2M1>(24.0f * two.six.multiplier), encode<E2M1>(6.0f));
  EXPECT_EQ(encode<E2M1>(24.0f * two.four.multiplier), encode<E2M1>(4.0f));
  // The largest block has no room above 448: both candidates are the same scale.
  const FourOverSix top = nvfp4_four_over_six(2688.0f, tensor);
  EXPECT_EQ(top.six.byte, UE4M3::max_byte);
  EXPECT_EQ(top.four.byte, UE4M3::max_byte);
}

TEST(FourOverSixTest, ErrorIsTheFusedSquareInEncodedUnits) {
  test::RandomBits random(17);
  for (int i = 0; i < 100'000; ++i) {
    const TensorScale tensor =
        TensorScale::from_amax(std::fabs(float_of(random.float_bits(-20, 20))));
    const float value = float_of(random.float_bits(-20, 20));
    const auto code = static_cast<std::uint8_t>(random.between(0, 15));
    const auto scale = static_cast<std::uint8_t>(random.between(0, 0x7E));
    const float sum = std::fabs(float_of(random.float_bits(-4, 12)));
    const double decoded = test::slow_decode<E2M1>(code) * test::slow_decode<E4M3>(scale);
    const float error = std::fma(value, tensor.encode, -static_cast<float>(decoded));
    const BlockError kind = all_block_errors[random.between(0, 1)];
    const float want =
        kind == BlockError::mae ? sum + std::fabs(error) : std::fma(error, error, sum);
    const float got = nvfp4_add_error(kind, sum, value, code, scale, tensor);
    ASSERT_EQ(bits_of(got), bits_of(want))
        << name_of(kind) << ", " << show(value) << ", code " << show_code(code) << ", scale "
        << show_code(scale) << ": got " << show(got) << ", want " << show(want);
  }
}

// Values that four represents better than six (5 is no code), and the reverse.
TEST(FourOverSixTest, SmallerErrorPicksTheBetterCandidate) {
  const TensorScale tensor = TensorScale::from_amax(2688.0f);
  const auto error_under = [&](const BlockScale& block, const std::vector<float>& values,
                               BlockError kind = BlockError::mse) {
    float sum = 0.0f;
    for (float value : values) {
      const std::uint8_t code = encode<E2M1>(value * block.multiplier);
      sum = nvfp4_add_error(kind, sum, value, code, block.byte, tensor);
    }
    return sum;
  };
  // 24 and 18 are 4 and 3 under scale 6; under scale 4, 18 lies between the codes 4 and 6.
  const std::vector<float> prefer_four = {24.0f, 18.0f};
  const FourOverSix two = nvfp4_four_over_six(24.0f, tensor);
  EXPECT_EQ(error_under(two.four, prefer_four), 0.0f);
  EXPECT_EQ(error_under(two.six, prefer_four), 4.0f);
  const std::vector<float> prefer_six = {24.0f, 2.0f};
  EXPECT_EQ(error_under(two.six, prefer_six), 0.0f);
  EXPECT_EQ(error_under(two.four, prefer_six), 1.0f);
  // One error of 2, or five of 1.
  const std::vector<float> by_kind = {24.0f, 18.0f, 2.0f, 2.0f, 2.0f, 2.0f, 2.0f};
  EXPECT_EQ(error_under(two.six, by_kind), 4.0f);
  EXPECT_EQ(error_under(two.six, by_kind, BlockError::mae), 2.0f);
}

}  // namespace
}  // namespace mxkern
