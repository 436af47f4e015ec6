// tests/numerics/rounding_test.cc: stochastic rounding, against its definition in double precision.
#include "mxkern/numerics/rounding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mxkern/core/philox.h"
#include "tests/support/format_list.h"
#include "tests/support/random_bits.h"
#include "tests/support/show.h"
#include "tests/support/slow_codec.h"

namespace mxkern {
namespace {

using test::show;
using test::show_bits;
using test::show_code;

constexpr float infinity = std::numeric_limits<float>::infinity();

template <class Format>
class StochasticTest : public ::testing::Test {
 protected:
  static constexpr int max_code = test::published<Format>.max_code;

  static constexpr std::uint32_t last_word = 0xFFFF;

  static std::uint32_t encode_with(float value, std::uint32_t word) {
    return encode_stochastic_lanes<Format>(value, word);
  }

  static void expect_code(float value, std::uint32_t word, std::uint32_t want) {
    const std::uint32_t got = encode_with(value, word);
    if (got != want) {
      FAIL() << Format::name << " of " << show(value) << ", word " << show_bits(word) << ": got "
             << show_code(got) << ", want " << show_code(want);
    }
  }

  static float value_of(int code) { return static_cast<float>(test::slow_decode<Format>(code)); }

  // The value `parts` / 2^16 of the way from a code to the next: exact in float32.
  static float between(int code, int parts) {
    const double below = test::slow_decode<Format>(code);
    const double above = test::slow_decode<Format>(code + 1);
    const double exact = below + (above - below) * parts * 0x1p-16;
    EXPECT_EQ(static_cast<double>(static_cast<float>(exact)), exact);
    return static_cast<float>(exact);
  }
};
TYPED_TEST_SUITE(StochasticTest, test::FormatTypes, test::NameOfType);

TYPED_TEST(StochasticTest, ExactValuesNeverMove) {
  test::RandomBits random(10);
  for (int code = 0; code <= this->max_code; ++code) {
    const float value = this->value_of(code);
    for (int i = 0; i < 1'000; ++i) {
      const std::uint32_t word = i == 0 ? 0u : i == 1 ? this->last_word : random.next() >> 16;
      this->expect_code(value, word, test::slow_signed_code<TypeParam>(false, code));
      this->expect_code(-value, word, test::slow_signed_code<TypeParam>(true, code));
    }
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(StochasticTest, FollowsTheDefinitionOnRandomValuesAndWords) {
  test::RandomBits random(11);
  const int lowest = TypeParam::min_exponent - TypeParam::mantissa_bits - 34;
  for (int i = 0; i < 300'000 && !this->HasFatalFailure(); ++i) {
    const std::uint32_t bits = random.float_bits(lowest, TypeParam::max_exponent + 1);
    const std::uint32_t word = random.next() >> 16;
    this->expect_code(float_of(bits), word,
                      test::slow_encode_stochastic<TypeParam>(float_of(bits), word));
  }
}

// Fractions that lie on a word, in the middle between two, and a last place of float32 beside
// those, with the words around: where half of the word's last place decides.
TYPED_TEST(StochasticTest, FollowsTheDefinitionWhereTheWordsLastPlaceDecides) {
  test::RandomBits random(15);
  for (int code = 0; code < this->max_code && !this->HasFatalFailure(); ++code) {
    const double below = test::slow_decode<TypeParam>(code);
    const double step = test::slow_decode<TypeParam>(code + 1) - below;
    for (int i = 0; i < 40; ++i) {
      const int halves = i < 4 ? i + 1 : random.between(1, 0x1FFFF);
      const auto value = static_cast<float>(below + step * halves * 0x1p-17);
      const int own = 0x10000 - halves / 2;
      for (const float near :
           {std::nextafter(value, 0.0f), value, std::nextafter(value, infinity)}) {
        for (int word = std::max(own - 2, 0); word <= std::min(own + 1, 0xFFFF); ++word) {
          const auto w = static_cast<std::uint32_t>(word);
          this->expect_code(-near, w, test::slow_encode_stochastic<TypeParam>(-near, w));
        }
      }
    }
  }
}

// Over all words the share that rounds up is the fraction, to half of the word's last place: the
// mean is off by at most 2^-17 of a step. The code is monotone in the word.
TYPED_TEST(StochasticTest, MeanOverAllWordsIsTheValueTo17Bits) {
  for (int code : {0, 1, this->max_code / 2, this->max_code - 1}) {
    for (const double fraction :
         {0x1p-17, 0x1p-16, 0x1.8p-16, 0.25, 1.0 / 3, 0x5555p-16, 0.5, 0.8125, 1 - 0x1p-16}) {
      const double below = test::slow_decode<TypeParam>(code);
      const double step = test::slow_decode<TypeParam>(code + 1) - below;
      const auto value = static_cast<float>(below + step * fraction);
      const std::uint32_t lower = test::slow_signed_code<TypeParam>(false, code);
      const std::uint32_t upper = test::slow_signed_code<TypeParam>(false, code + 1);
      int raised = 0;
      for (std::uint32_t word = 0; word <= this->last_word; ++word) {
        const std::uint32_t got = this->encode_with(value, word);
        ASSERT_TRUE(got == upper || (got == lower && raised == 0))
            << TypeParam::name << " of " << show(value) << ", word " << show_bits(word) << ": got "
            << show_code(got);
        raised += got == upper ? 1 : 0;
      }
      const double mean = below + step * raised * 0x1p-16;
      EXPECT_LE(std::fabs(mean - value), step * 0x1p-17)
          << TypeParam::name << " " << show(value) << " above " << show_code(lower) << ": "
          << raised << " of 65536 words round up";
    }
  }
}

TYPED_TEST(StochasticTest, SaturatesAfterRounding) {
  const float largest = TypeParam::max_value;
  for (std::uint32_t word : {0u, 0x8000u, this->last_word}) {
    for (float value : {largest, std::nextafter(largest, infinity), 1.2f * largest, 1e30f,
                        float32::largest(), infinity}) {
      this->expect_code(value, word, test::slow_signed_code<TypeParam>(false, this->max_code));
      this->expect_code(-value, word, test::slow_signed_code<TypeParam>(true, this->max_code));
    }
    // Just below the largest value every word raises the fraction, and none overshoots.
    this->expect_code(std::nextafter(largest, 0.0f), word, this->max_code);
  }
}

// A value under the smallest subnormal becomes it with probability value / smallest, down to 2^-17,
// which the last word alone raises.
TYPED_TEST(StochasticTest, TinyValuesRoundUpRarelyAndKeepTheirSign) {
  const float smallest = TypeParam::min_subnormal;
  const std::uint32_t zero = test::slow_signed_code<TypeParam>(true, 0);
  const std::uint32_t one = test::slow_signed_code<TypeParam>(true, 1);
  for (int power = 1; power <= 17; ++power) {
    const float value = -std::ldexp(smallest, -power);
    const std::uint32_t first = power == 17 ? this->last_word : 0x10000u - (0x10000u >> power);
    this->expect_code(value, first - 1, zero);
    this->expect_code(value, first, one);
  }
  for (float value : {std::nextafter(std::ldexp(smallest, -17), 0.0f), std::ldexp(smallest, -18),
                      std::ldexp(smallest, -33), 0x1p-126f, 0x1.8p-127f, 0x1p-149f, 0.0f}) {
    this->expect_code(-value, this->last_word, zero);
  }
}

TYPED_TEST(StochasticTest, MeanOfManyDrawsIsTheValue) {
  constexpr int draws = 4096;
  for (int code : {0, this->max_code / 3, this->max_code - 1}) {
    const double below = test::slow_decode<TypeParam>(code);
    const double step = test::slow_decode<TypeParam>(code + 1) - below;
    for (double fraction : {0.0009765625, 0.3, 0.5, 0.8125}) {
      const auto value = static_cast<float>(below + step * fraction);
      double sum = 0;
      for (std::uint64_t index = 0; index < draws; ++index) {
        const std::uint32_t drawn = this->encode_with(value, philox_word(1234, 5, index));
        sum += test::slow_decode<TypeParam>(static_cast<int>(drawn));
      }
      const double p = (value - below) / step;
      const double five_errors = 5 * step * std::sqrt(p * (1 - p) / draws);
      EXPECT_NEAR(sum / draws, value, five_errors) << show(value) << ", fraction " << fraction;
    }
  }
}

TEST(RoundingTest, HasNames) {
  EXPECT_STREQ(name_of(Rounding::nearest), "nearest");
  EXPECT_STREQ(name_of(Rounding::stochastic), "stochastic");
}

TEST(RoundingTest, IsVisitedAsAConstant) {
  for (const Rounding rounding : all_roundings) {
    EXPECT_EQ(visit(rounding, [](auto constant) { return constant(); }), rounding);
  }
}

}  // namespace
}  // namespace mxkern
