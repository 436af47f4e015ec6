// tests/numerics/scale_rule_test.cc: the four E8M0 rules against their definitions.
#include "mxkern/numerics/scale_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "mxkern/numerics/codec.h"
#include "tests/support/format_list.h"
#include "tests/support/random_bits.h"
#include "tests/support/show.h"
#include "tests/support/slow_scale.h"

namespace mxkern {
namespace {

using test::published;
using test::show;

template <class Format>
class ScaleRuleTest : public ::testing::Test {
 protected:
  static void expect_byte(std::uint32_t amax, ScaleRule rule) {
    const int got = e8m0_scale<Format>(amax, rule);
    const int want = test::slow_e8m0_scale<Format>(float_of(amax), rule);
    if (got != want) {
      FAIL() << Format::name << " " << name_of(rule) << " scale of amax " << show(float_of(amax))
             << ": got " << got << ", want " << want;
    }
  }
};
TYPED_TEST_SUITE(ScaleRuleTest, test::FormatTypes, test::NameOfType);

// Every exponent field, with the mantissas at which some rule or format changes its mind.
TYPED_TEST(ScaleRuleTest, EveryExponentWithCraftedMantissas) {
  constexpr int man = TypeParam::mantissa_bits;
  const auto largest = static_cast<float>(published<TypeParam>.largest);
  const std::uint32_t of_largest = float32::mantissa_field(bits_of(largest));
  const std::uint32_t half = 1u << (22 - man);  // of the format's last place
  const std::uint32_t mantissas[] = {0, 0x400000, of_largest, half, 0x800000 - half, 0x7FFFFF};
  for (std::uint32_t field = 0; field < 255; ++field) {
    for (std::uint32_t mantissa : mantissas) {
      for (int step = -2; step <= 2; ++step) {
        const std::uint32_t near = (mantissa + static_cast<std::uint32_t>(step)) & 0x7FFFFF;
        for (ScaleRule rule : all_scale_rules) this->expect_byte(field << 23 | near, rule);
      }
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(ScaleRuleTest, RandomMagnitudes) {
  test::RandomBits random(13);
  for (int i = 0; i < 300'000 && !this->HasFatalFailure(); ++i) {
    const std::uint32_t amax = random.next() & float32::magnitude_mask;
    if (!float32::is_finite(amax)) continue;
    for (ScaleRule rule : all_scale_rules) this->expect_byte(amax, rule);
  }
}

TYPED_TEST(ScaleRuleTest, EndsOfTheRange) {
  for (ScaleRule rule : all_scale_rules) {
    EXPECT_EQ(e8m0_scale<TypeParam>(0, rule), 0) << name_of(rule);
    for (std::uint32_t amax : {1u, 0x3FFFFFu, 0x400000u, 0x400001u, 0x7FFFFFu, 0x800000u,
                               float32::largest_bits - 1, float32::largest_bits}) {
      this->expect_byte(amax, rule);
    }
  }
  // Rounded, it carries beyond float32: the exponent counts as 255.
  constexpr int of_carry = std::min(255 - published<TypeParam>.emax, 254);
  constexpr std::uint32_t half = 1u << (22 - TypeParam::mantissa_bits);
  for (std::uint32_t below : {0u, 1u, half - 1, half, half + 1}) {
    const int byte = e8m0_scale<TypeParam>(float32::largest_bits - below, ScaleRule::even);
    EXPECT_EQ(byte, below < half ? of_carry : 254 - published<TypeParam>.emax)
        << TypeParam::name << ", " << below << " below the largest float32";
  }
}

// Over all mantissas of a normal exponent: rceil gives the smallest power of two under which the
// format's largest value is not exceeded, whatever the roundings of 1/max and of the product. One
// number is excepted: float32(64/127) lies low, so the next float32 above INT8's largest value is
// taken for it. It rounds to that value, so that no code is worse for it.
TYPED_TEST(ScaleRuleTest, RceilIsTheSmallestScaleThatHoldsTheAmax) {
  const double largest = published<TypeParam>.largest;
  for (int exponent : {-100, 0, 100}) {
    const std::uint32_t stride = exponent == 0 ? 1 : 61;
    const std::uint32_t field = static_cast<std::uint32_t>(exponent + 127) << 23;
    for (std::uint32_t mantissa = 0; mantissa <= float32::mantissa_mask; mantissa += stride) {
      const std::uint32_t amax = field | mantissa;
      const int byte = e8m0_scale<TypeParam>(amax, ScaleRule::rceil);
      const double held = largest * static_cast<double>(float32::exp2(byte - 127));
      const double value = float_of(amax);
      if (TypeParam::is_integer && amax == bits_of(static_cast<float>(held)) + 1) continue;
      if (value > held || value <= held / 2) {
        FAIL() << TypeParam::name << ", amax " << show(float_of(amax)) << ": byte " << byte
               << " holds up to " << show(held);
      }
    }
  }
}

// Where amax / max is subnormal it has few bits left, and the rule may call an amax equal to
// max * 2^-127 that lies above it by less than that rounding. Its code is the largest all the same.
TYPED_TEST(ScaleRuleTest, RceilAtTheLowEndRoundsToTheLargestCodeAtMost) {
  const double edge = published<TypeParam>.largest * 0x1p-127;
  const std::uint32_t at = bits_of(static_cast<float>(edge));
  for (std::uint32_t amax = at - 4096; amax <= at + 4096; ++amax) {
    const double excess = float_of(amax) / edge - 1.0;
    const int byte = e8m0_scale<TypeParam>(amax, ScaleRule::rceil);
    if (byte == 0) {
      EXPECT_LE(excess, 0x1p-22) << show(float_of(amax));
    } else {
      EXPECT_EQ(byte, 1) << show(float_of(amax));
      EXPECT_GT(excess, 0.0) << show(float_of(amax));
    }
  }
}

TYPED_TEST(ScaleRuleTest, NoRuleIsFarFromRceil) {
  test::RandomBits random(14);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint32_t amax = random.float_bits(-90, 90) & float32::magnitude_mask;
    const int rceil = e8m0_scale<TypeParam>(amax, ScaleRule::rceil);
    const int floor = e8m0_scale<TypeParam>(amax, ScaleRule::floor);
    const int ceil = e8m0_scale<TypeParam>(amax, ScaleRule::ceil);
    const int even = e8m0_scale<TypeParam>(amax, ScaleRule::even);
    ASSERT_LE(floor, even) << show(float_of(amax));
    ASSERT_LE(even, ceil) << show(float_of(amax));
    ASSERT_LE(floor, rceil) << show(float_of(amax));
    ASSERT_LE(rceil, ceil) << show(float_of(amax));
    ASSERT_LE(ceil, floor + 1) << show(float_of(amax));
  }
}

TEST(ScaleRuleNames, AreThePublishedOnes) {
  EXPECT_STREQ(name_of(ScaleRule::rceil), "rceil");
  EXPECT_STREQ(name_of(ScaleRule::floor), "floor");
  EXPECT_STREQ(name_of(ScaleRule::ceil), "ceil");
  EXPECT_STREQ(name_of(ScaleRule::even), "even");
}

}  // namespace
}  // namespace mxkern
