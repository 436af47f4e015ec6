// tests/core/dtype_test.cc: float16 and bfloat16 against double precision, all patterns.
#include "mxkern/core/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/random_bits.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using test::RandomBits;
using test::show;
using test::show_bits;

constexpr double infinity = std::numeric_limits<double>::infinity();

// The value of a 16-bit pattern with this many exponent and mantissa bits, in double precision.
double slow_value(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int field = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = static_cast<int>(bits) & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  double magnitude = 0;
  if (field == (1 << exponent_bits) - 1) {
    magnitude = mantissa == 0 ? infinity : std::numeric_limits<double>::quiet_NaN();
  } else {
    const int implicit = field == 0 ? 0 : 1 << mantissa_bits;
    magnitude = std::ldexp(implicit + mantissa, std::max(field, 1) - bias - mantissa_bits);
  }
  return bits >> 15 ? -magnitude : magnitude;
}

template <class T>
struct Layout;
template <>
struct Layout<float16> {
  static constexpr const char* name = "float16";
  static constexpr int exponent_bits = 5;
  static constexpr int mantissa_bits = 10;
  static constexpr std::uint32_t infinity_bits = 0x7C00;
};
template <>
struct Layout<bfloat16> {
  static constexpr const char* name = "bfloat16";
  static constexpr int exponent_bits = 8;
  static constexpr int mantissa_bits = 7;
  static constexpr std::uint32_t infinity_bits = 0x7F80;
};

struct NameOfLayout {
  template <class T>
  static std::string GetName(int) {
    return Layout<T>::name;
  }
};

template <class T>
class HalfTest : public ::testing::Test {
 protected:
  static double value_of(std::uint32_t bits) {
    return slow_value(bits, Layout<T>::exponent_bits, Layout<T>::mantissa_bits);
  }

  // Magnitude patterns by the float32 bits at which rounding to nearest even reaches them. The
  // pattern of Inf stands for the power of two that would come next.
  static std::vector<std::uint32_t> thresholds() {
    std::vector<std::uint32_t> first_above;
    const std::uint32_t last = Layout<T>::infinity_bits - 1;
    for (std::uint32_t bits = 0; bits <= last; ++bits) {
      const double above =
          bits == last ? 2 * value_of(last) - value_of(last - 1) : value_of(bits + 1);
      const auto middle = static_cast<float>((value_of(bits) + above) / 2);
      first_above.push_back(bits_of(middle) + (bits % 2 == 0 ? 1u : 0u));
    }
    return first_above;
  }
};

using Halves = ::testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(HalfTest, Halves, NameOfLayout);

TYPED_TEST(HalfTest, EveryPatternWidensExactly) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float got = to_float(TypeParam{static_cast<std::uint16_t>(bits)});
    const double want = this->value_of(bits);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << show_bits(bits) << " widens to " << show(got);
    } else {
      ASSERT_EQ(static_cast<double>(got), want) << show_bits(bits) << " widens to " << show(got);
      ASSERT_EQ(std::signbit(got), bits >> 15 != 0) << show_bits(bits);
    }
  }
}

TYPED_TEST(HalfTest, EveryPatternSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    if ((bits & 0x7FFF) > Layout<TypeParam>::infinity_bits) continue;
    const TypeParam half{static_cast<std::uint16_t>(bits)};
    ASSERT_EQ(from_float<TypeParam>(to_float(half)).bits, half.bits) << show_bits(bits);
  }
}

TYPED_TEST(HalfTest, RoundsToNearestEvenAtEveryThreshold) {
  const std::vector<std::uint32_t> first_above = this->thresholds();
  for (std::uint32_t below = 0; below < first_above.size(); ++below) {
    for (std::uint32_t sign : {0u, 0x8000u}) {
      const std::uint32_t at = first_above[below];
      const auto last = from_float<TypeParam>(float_of((at - 1) | sign << 16));
      const auto first = from_float<TypeParam>(float_of(at | sign << 16));
      ASSERT_EQ(last.bits, below | sign) << "from " << show_bits((at - 1) | sign << 16);
      ASSERT_EQ(first.bits, (below + 1) | sign) << "from " << show_bits(at | sign << 16);
    }
  }
}

TYPED_TEST(HalfTest, RoundsRandomPatternsToNearestEven) {
  const std::vector<std::uint32_t> first_above = this->thresholds();
  RandomBits random(1);
  for (int i = 0; i < 6'000'000; ++i) {
    // Half of the patterns anywhere, half where float16 has its values.
    const std::uint32_t bits = i % 2 ? random.next() : random.float_bits(-26, 17);
    const std::uint32_t magnitude = bits & float32::magnitude_mask;
    if (magnitude > float32::infinity_bits) continue;
    const auto position = std::upper_bound(first_above.begin(), first_above.end(), magnitude);
    const auto want =
        static_cast<std::uint32_t>(position - first_above.begin()) | (bits >> 16 & 0x8000u);
    const std::uint32_t got = from_float<TypeParam>(float_of(bits)).bits;
    if (got != want) {
      FAIL() << Layout<TypeParam>::name << " of " << show(float_of(bits)) << ": got "
             << show_bits(got) << ", want " << show_bits(want);
    }
  }
}

TYPED_TEST(HalfTest, NanStaysAQuietNanOfTheSameSign) {
  constexpr std::uint32_t quiet = 1u << (Layout<TypeParam>::mantissa_bits - 1);
  for (std::uint32_t sign : {0u, 0x80000000u}) {
    for (std::uint32_t payload : {1u, 0x1FFFu, 0xFFFFu, 0x10000u, 0x400000u, 0x7FFFFFu}) {
      const std::uint32_t bits = sign | float32::infinity_bits | payload;
      const std::uint32_t got = from_float<TypeParam>(float_of(bits)).bits;
      EXPECT_GT(got & 0x7FFFu, Layout<TypeParam>::infinity_bits) << show_bits(bits);
      EXPECT_EQ(got & quiet, quiet) << show_bits(bits);
      EXPECT_EQ(got >> 15, sign >> 31) << show_bits(bits);
    }
  }
}

#if defined(__FLT16_MANT_DIG__)
// The compiler's own binary16. GCC 12 has it under this name alone for AArch64.
#if defined(__aarch64__)
using CompilerHalf = __fp16;
#else
using CompilerHalf = _Float16;
#endif
TEST(Float16Test, AgreesWithTheCompiler) {
  RandomBits random(2);
  for (int i = 0; i < 2'000'000; ++i) {
    const float value = float_of(i % 2 ? random.next() : random.float_bits(-27, 17));
    if (std::isnan(value)) continue;
    const auto want = __builtin_bit_cast(std::uint16_t, static_cast<CompilerHalf>(value));
    const std::uint16_t got = from_float<float16>(value).bits;
    if (got != want) {
      FAIL() << show(value) << ": got " << show_bits(got) << ", want " << show_bits(want);
    }
  }
}
#endif

TEST(DTypeTest, VisitNamesAndSizesAgree) {
  for (DType dtype : all_dtypes) {
    visit(dtype, [&]<class T>(TypeTag<T>) {
      EXPECT_EQ(dtype_of<T>::value, dtype) << name_of(dtype);
      EXPECT_EQ(size_of(dtype), sizeof(T)) << name_of(dtype);
    });
  }
  EXPECT_STREQ(name_of(DType::float32), "float32");
  EXPECT_STREQ(name_of(DType::float16), "float16");
  EXPECT_STREQ(name_of(DType::bfloat16), "bfloat16");
}

TEST(DTypeTest, Float32PassesThrough) {
  for (float value : {0.0f, -0.0f, 1.5f, 0x1p-149f}) {
    EXPECT_EQ(bits_of(from_float<float>(to_float(value))), bits_of(value)) << show(value);
  }
}

}  // namespace
}  // namespace mxkern
