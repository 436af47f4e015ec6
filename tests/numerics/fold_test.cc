// tests/numerics/fold_test.cc: folded codes against double precision, every code at every distance.
#include "mxkern/numerics/fold.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/show.h"
#include "tests/support/slow_codec.h"

namespace mxkern {
namespace {

using test::show;
using test::show_code;
using test::slow_decode;

template <class Format>
class FoldTest : public ::testing::Test {
 protected:
  using Target = typename Fold<Format>::Target;
  static constexpr int codes = 1 << Format::bits;

  // What an element is, where `distance` 0 raises it by the base shift.
  static double shifted(int code, int distance) {
    return std::ldexp(slow_decode<Format>(code), Fold<Format>::base_shift - distance);
  }
  static double folded(int code, int distance) {
    return slow_decode<Target>(
        fold_code<Format>(static_cast<std::uint8_t>(code), static_cast<unsigned>(distance)));
  }
  // The largest loss of a finite code.
  static double loss(int distance) {
    double largest = 0.0;
    for (int code = 0; code < codes; ++code) {
      if (!std::isfinite(slow_decode<Format>(code))) continue;
      largest = std::fmax(largest, std::fabs(folded(code, distance) - shifted(code, distance)));
    }
    return largest;
  }
};
using FoldedFormats = ::testing::Types<E4M3, E5M2, E3M2, E2M3, E2M1>;
TYPED_TEST_SUITE(FoldTest, FoldedFormats, test::NameOfType);

TYPED_TEST(FoldTest, EveryCodeAtEveryDistanceIsTheNearest) {
  using Target = typename TestFixture::Target;
  for (int code = 0; code < this->codes; ++code) {
    for (int distance = 0; distance < 256; ++distance) {
      const double value = this->shifted(code, distance);
      const int got =
          fold_code<TypeParam>(static_cast<std::uint8_t>(code), static_cast<unsigned>(distance));
      const int want = std::isnan(value)   ? Target::poison_code
                       : std::isinf(value) ? code
                                           : test::slow_encode<Target>(value);
      ASSERT_EQ(got, want) << TypeParam::name << " " << show_code(code) << " at " << distance
                           << ", which is " << show(value) << ": got " << show_code(got)
                           << ", want " << show_code(want);
    }
  }
}

TYPED_TEST(FoldTest, NothingSaturatesAndNothingCouldBeRaisedFurther) {
  const double largest = test::published<TypeParam>.largest;
  const double room = test::published<typename TestFixture::Target>.largest;
  EXPECT_LE(std::ldexp(largest, Fold<TypeParam>::base_shift), room);
  EXPECT_GT(std::ldexp(largest, Fold<TypeParam>::base_shift + 1), room);
}

TYPED_TEST(FoldTest, ExactSpreadIsWhereLossesBegin) {
  for (int distance = 0; distance <= Fold<TypeParam>::exact_spread; ++distance) {
    EXPECT_EQ(this->loss(distance), 0.0) << "at " << distance;
  }
  EXPECT_GT(this->loss(Fold<TypeParam>::exact_spread + 1), 0.0);
}

// 2^-10 of the power of two of the block's largest element, or nothing.
TYPED_TEST(FoldTest, SpreadLimitIsWhereLossesPassTheContract) {
  const auto tolerated = [](int distance) {
    return std::ldexp(
        1.0, test::published<TypeParam>.emax + Fold<TypeParam>::base_shift - distance - 10);
  };
  for (int distance = 0; distance <= Fold<TypeParam>::spread_limit; ++distance) {
    EXPECT_LE(this->loss(distance), tolerated(distance)) << "at " << distance;
  }
  const int beyond = Fold<TypeParam>::spread_limit + 1;
  EXPECT_GT(this->loss(beyond), tolerated(beyond));
}

}  // namespace
}  // namespace mxkern
