// tests/numerics/rounding_test.cc: stochastic rounding, against its definition in double precision.
#include "mxkern/numerics/rounding.h"

#include <gtest/gtest.h>

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

  static std::uint32_t encode_with(float value, std::uint32_t random) {
    return encode_stochastic_lanes<Format>(value, random);
  }

  static void expect_code(float value, std::uint32_t random, std::uint32_t want) {
    const std::uint32_t got = encode_with(value, random);
    if (got != want) {
      FAIL() << Format::name << " of " << show(value) << ", random " << show_bits(random)
             << ": got " << show_code(got) << ", want " << show_code(want);
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
      const std::uint32_t word = i == 0 ? 0u : i == 1 ? 0xFFFFFFFFu : random.next();
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
    const std::uint32_t word = random.next();
    this->expect_code(float_of(bits), word,
                      test::slow_encode_stochastic<TypeParam>(float_of(bits), word));
  }
}

// Between every two neighbours, the random word at which the code begins to carry is exactly 2^32
// less the fraction; so the code is monotone in the word.
TYPED_TEST(StochasticTest, CarriesExactlyFromTheFractionsComplementOn) {
  test::RandomBits random(12);
  for (int code = 0; code < this->max_code && !this->HasFatalFailure(); ++code) {
    for (int i = 0; i < 50; ++i) {
      const int parts = i == 0 ? 1 : i == 1 ? 0xFFFF : random.between(1, 0xFFFF);
      const float value = this->between(code, parts);
      const std::uint32_t first = 0u - (static_cast<std::uint32_t>(parts) << 16);
      const std::uint32_t below = test::slow_signed_code<TypeParam>(true, code);
      const std::uint32_t above = test::slow_signed_code<TypeParam>(true, code + 1);
      this->expect_code(-value, 0, below);
      this->expect_code(-value, first - 1, below);
      this->expect_code(-value, first, above);
      this->expect_code(-value, 0xFFFFFFFFu, above);
    }
  }
}

// Over all upper halves of the random word, the share that rounds up is the fraction, to the last.
TYPED_TEST(StochasticTest, ProbabilityIsTheFraction) {
  for (int code : {0, 1, this->max_code / 2, this->max_code - 1}) {
    for (int parts : {1, 0x4000, 0x5555, 0x8000, 0xFFFF}) {
      const float value = this->between(code, parts);
      const std::uint32_t below = test::slow_signed_code<TypeParam>(false, code);
      int raised = 0;
      for (std::uint32_t upper = 0; upper < 65536; ++upper) {
        if (this->encode_with(value, upper << 16) != below) ++raised;
      }
      EXPECT_EQ(raised, parts) << show(value) << " above " << show_code(below);
    }
  }
}

TYPED_TEST(StochasticTest, SaturatesAfterRounding) {
  const float largest = TypeParam::max_value;
  for (std::uint32_t word : {0u, 0x80000000u, 0xFFFFFFFFu}) {
    for (float value : {largest, std::nextafter(largest, infinity), 1.2f * largest, 1e30f,
                        float32::largest(), infinity}) {
      this->expect_code(value, word, test::slow_signed_code<TypeParam>(false, this->max_code));
      this->expect_code(-value, word, test::slow_signed_code<TypeParam>(true, this->max_code));
    }
    // Just below the largest value there is a fraction: the top word raises it, none overshoots.
    const float inside = std::nextafter(largest, 0.0f);
    this->expect_code(inside, word, word == 0u ? this->max_code - 1 : this->max_code);
  }
}

// A value under the smallest subnormal becomes it with probability value / smallest, down to 2^-32.
TYPED_TEST(StochasticTest, TinyValuesRoundUpRarelyAndKeepTheirSign) {
  const float smallest = TypeParam::min_subnormal;
  const std::uint32_t zero = test::slow_signed_code<TypeParam>(true, 0);
  const std::uint32_t one = test::slow_signed_code<TypeParam>(true, 1);
  for (int power = 1; power <= 32; ++power) {
    const float value = -std::ldexp(smallest, -power);
    const std::uint32_t first = 0u - (1u << (32 - power));
    this->expect_code(value, first - 1, zero);
    this->expect_code(value, first, one);
  }
  for (float value : {std::ldexp(smallest, -33), 0x1p-126f, 0x1.8p-127f, 0x1p-149f, 0.0f}) {
    this->expect_code(-value, 0xFFFFFFFFu, zero);
  }
}

TYPED_TEST(StochasticTest, MeanOfManyDrawsIsTheValue) {
  constexpr int draws = 1 << 16;
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
      const double five_sigma = 5 * step * std::sqrt(p * (1 - p) / draws);
      EXPECT_NEAR(sum / draws, value, five_sigma) << show(value) << ", fraction " << fraction;
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
