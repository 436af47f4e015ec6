// tests/numerics/format_test.cc: the limits that the types derive are those of the standard.
#include "mxkern/numerics/format.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/format_list.h"
#include "tests/support/slow_codec.h"

namespace mxkern {
namespace {

using test::published;

template <class Format>
class FormatTest : public ::testing::Test {};
TYPED_TEST_SUITE(FormatTest, test::FormatTypes, test::NameOfType);

TYPED_TEST(FormatTest, LimitsAreThePublishedOnes) {
  using F = TypeParam;
  constexpr test::PublishedFormat want = published<F>;
  EXPECT_EQ(F::bits, want.bits);
  EXPECT_EQ(F::mantissa_bits, want.mantissa_bits);
  EXPECT_EQ(F::is_integer, want.exponent_bits == 0);
  EXPECT_EQ(F::max_code, want.max_code);
  EXPECT_EQ(static_cast<double>(F::max_value), want.largest);
  EXPECT_EQ(static_cast<double>(F::min_subnormal), want.smallest_subnormal);
  EXPECT_EQ(static_cast<double>(float32::exp2(F::min_exponent)), want.smallest_normal);
  EXPECT_EQ(F::max_exponent, want.emax);
  EXPECT_EQ(F::has_nan, want.first_nan >= 0);
  EXPECT_EQ(F::specials == Specials::ieee, want.infinity_code >= 0);
  if constexpr (!F::is_integer) {
    EXPECT_EQ(F::exponent_bits, want.exponent_bits);
    EXPECT_EQ(F::bias, want.bias);
    EXPECT_EQ(F::sign_mask, 1 << (want.bits - 1));
    EXPECT_EQ(F::magnitude_mask, (1 << (want.bits - 1)) - 1);
  }
}

TYPED_TEST(FormatTest, PoisonCodeIsNanOrZero) {
  using F = TypeParam;
  if (F::has_nan) {
    EXPECT_EQ(F::poison_code, 0x7F);
    EXPECT_TRUE(std::isnan(test::slow_decode<F>(F::poison_code)));
  } else {
    EXPECT_EQ(F::poison_code, 0);
  }
}

}  // namespace
}  // namespace mxkern
