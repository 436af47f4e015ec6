// tests/core/math_test.cc: integer helpers and the fields of a float32.
#include "mxkern/core/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/random_bits.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using test::show;

TEST(CeilDiv, CountsTheBlocksThatCover) {
  for (std::int64_t b : {1, 2, 3, 16, 32, 128}) {
    for (std::int64_t a = 0; a <= 3 * b; ++a) {
      std::int64_t blocks = 0;
      while (blocks * b < a) ++blocks;
      EXPECT_EQ(ceil_div(a, b), blocks) << a << " / " << b;
      EXPECT_EQ(round_up(a, b), blocks * b) << a << " up to " << b;
    }
  }
  const std::int64_t large = std::int64_t{1} << 40;
  EXPECT_EQ(ceil_div(large + 1, 32), large / 32 + 1);
}

TEST(Exp2, IsExactForEveryExponent) {
  for (int exponent = -149; exponent <= 127; ++exponent) {
    const float want = std::ldexp(1.0f, exponent);
    EXPECT_EQ(bits_of(float32::exp2(exponent)), bits_of(want))
        << "2^" << exponent << ": got " << show(float32::exp2(exponent));
  }
}

TEST(Float32, FieldsPutTogetherAreTheNumber) {
  for (float value : {0.0f, 1.0f, -1.5f, 0x1p-149f, 0x1.fffffep127f, -0x1.8p-126f}) {
    const std::uint32_t bits = bits_of(value);
    const auto field = static_cast<int>(float32::exponent_field(bits));
    const double significand = float32::mantissa_field(bits) * 0x1p-23 + (field == 0 ? 0.0 : 1.0);
    const double magnitude = std::ldexp(significand, (field == 0 ? 1 : field) - float32::bias);
    EXPECT_EQ(magnitude, std::fabs(static_cast<double>(value))) << show(value);
  }
  EXPECT_EQ(float32::largest(), std::numeric_limits<float>::max());
}

TEST(Float32, NearestBitsAreThoseOfACast) {
  const auto check = [](double value) {
    ASSERT_EQ(float32::nearest_bits(value), bits_of(static_cast<float>(value))) << value;
  };
  // Around every number of these and the ties between them.
  for (const std::uint32_t first : {0u, 0x00000100u, 0x003FFFF0u, 0x007FFFF0u, 0x00FFFFF0u,
                                    0x3F7FFFF0u, 0x7EFFFFF0u, 0x7F7FFFD0u}) {
    for (std::uint32_t bits = first; bits < first + 32; ++bits) {
      const double below = float_of(bits), above = float_of(bits + 1);
      const double tie = below + (above - below) / 2;
      for (const double value :
           {below, std::nextafter(tie, 0.0), tie, std::nextafter(tie, 1e300)}) {
        check(value);
        check(-value);
      }
    }
  }
  test::RandomBits random(5);
  for (int i = 0; i < 1'000'000; ++i) {
    const int exponent = random.between(-180, 140);
    check(std::ldexp(1.0 + static_cast<double>(random.between(0, 1 << 30)) * 0x1p-30, exponent));
  }
  for (const double value :
       {0x1.fffffefffffffp127, 0x1.ffffffp127, 0x1p128, 1e300, 5e-324, HUGE_VAL}) {
    check(value);
    check(-value);
  }
  EXPECT_EQ(float32::nearest_bits(std::nan("")), float32::nan_bits);
  EXPECT_EQ(float32::nearest_bits(-std::nan("1")), float32::nan_bits);
}

TEST(Float32, FiniteIsWhatIsNeitherInfNorNan) {
  for (float value : {0.0f, -0.0f, 0x1p-149f, 0x1.fffffep127f, -0x1.fffffep127f}) {
    EXPECT_TRUE(float32::is_finite(bits_of(value))) << show(value);
  }
  for (std::uint32_t bits : {0x7F800000u, 0xFF800000u, 0x7F800001u, 0x7FC00000u, 0xFFFFFFFFu}) {
    EXPECT_FALSE(float32::is_finite(bits)) << test::show_bits(bits);
  }
}

TEST(LowerHigher, PickTheSecondWhenUnordered) {
  EXPECT_EQ(lower_of(1.0f, 2.0f), 1.0f);
  EXPECT_EQ(lower_of(2.0f, 1.0f), 1.0f);
  EXPECT_EQ(higher_of(1u, 2u), 2u);
  EXPECT_EQ(higher_of(2u, 1u), 2u);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(lower_of(infinity, float32::largest()), float32::largest());
  EXPECT_EQ(lower_of(std::numeric_limits<float>::quiet_NaN(), 1.0f), 1.0f);
}

TEST(WithOneNan, ChangesNansAndNothingElse) {
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    for (std::uint32_t lower : {0u, 1u, 0xFFFFu}) {
      const std::uint32_t bits = upper << 16 | lower;
      const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
      ASSERT_EQ(bits_of(with_one_nan(float_of(bits))), nan ? 0x7FC00000u : bits)
          << test::show_bits(bits);
    }
  }
}

}  // namespace
}  // namespace mxkern
