// tests/tensor/half_scales_test.cc: which codes times which scales a half holds.
#include "mxkern/tensor/half_scales.h"

#include <gtest/gtest.h>

#include <cmath>

#include "mxkern/core/dtype.h"
#include "mxkern/numerics/codec.h"

namespace mxkern {
namespace {

template <class Format>
class HalfScalesOf : public ::testing::Test {};

using Formats = ::testing::Types<E4M3, E5M2, E3M2, E2M3, E2M1, INT8>;
TYPED_TEST_SUITE(HalfScalesOf, Formats);

bool is_half(double value) {
  return std::isfinite(to_float(from_float<float16>(static_cast<float>(value)))) &&
         static_cast<double>(to_float(from_float<float16>(static_cast<float>(value)))) == value;
}

// What a kernel multiplies, in double precision: the code as a half, times the power of two.
template <class Format>
double product(std::uint8_t code, int field) {
  const double value = decode<Format>(code);
  double as_half = 0;
  if constexpr (Format::is_integer) {
    as_half = std::ldexp(value, Format::mantissa_bits);
  } else {
    as_half = std::ldexp(value, Format::bias - 15);
  }
  EXPECT_TRUE(is_half(as_half));
  return std::ldexp(as_half, field - 15);
}

// Where it says so every product is exact, and where it does not one of them would not be, or the
// power is no normal half.
TYPED_TEST(HalfScalesOf, AreExactWhereHalvesHoldThem) {
  using Scales = HalfScales<TypeParam>;
  constexpr int top = 140;
  for (int distance = 0; distance < 60; ++distance) {
    const int field = Scales::top_field - distance, scale = top - distance;
    for (std::uint32_t code = 1; code < (1u << TypeParam::bits); ++code) {
      std::uint32_t magnitude = code;
      if constexpr (!TypeParam::is_integer) magnitude = code & TypeParam::magnitude_mask;
      if (magnitude == 0) continue;
      if (!TypeParam::is_integer && magnitude > TypeParam::max_code) continue;
      const bool exact = Scales::are_exact(top, scale, scale + Scales::place(magnitude));
      const bool holds = is_half(product<TypeParam>(static_cast<std::uint8_t>(code), field));
      if (exact) {
        ASSERT_GE(field, 1);
        ASSERT_TRUE(holds) << "code " << code << ", distance " << distance;
      } else if (field >= 1) {
        // Of the codes with this exponent the odd ones do not fit.
        ASSERT_TRUE(!holds || magnitude % 2 == 0) << "code " << code << ", distance " << distance;
      }
    }
  }
}

// One place more would be beyond a half: the range is used to its end.
TYPED_TEST(HalfScalesOf, TopIsAsHighAsItCanBe) {
  using Scales = HalfScales<TypeParam>;
  const auto largest = static_cast<std::uint8_t>(TypeParam::max_code);
  EXPECT_TRUE(is_half(product<TypeParam>(largest, Scales::top_field)));
  if (Scales::top_field < 30) {
    EXPECT_FALSE(
        is_half(2 * product<TypeParam>(TypeParam::is_integer ? 0x80 : largest, Scales::top_field)));
  }
}

TYPED_TEST(HalfScalesOf, SumsAreScaledBack) {
  using Scales = HalfScales<TypeParam>;
  constexpr std::uint8_t code = 3;
  const double sum = product<TypeParam>(code, Scales::top_field - 2);
  EXPECT_EQ(std::ldexp(sum, 130 + Scales::sum_exponent),
            std::ldexp(static_cast<double>(decode<TypeParam>(code)), 128 - 127));
}

}  // namespace
}  // namespace mxkern
