// tests/numerics/codec_test.cc: encode and decode, over all codes, their neighbours and midpoints.
#include "mxkern/numerics/codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/format_list.h"
#include "tests/support/show.h"
#include "tests/support/slow_codec.h"

namespace mxkern {
namespace {

using test::show;
using test::show_code;

constexpr float infinity = std::numeric_limits<float>::infinity();

template <class Format>
class CodecTest : public ::testing::Test {
 protected:
  static constexpr int code_count = 1 << Format::bits;
  static constexpr int max_code = test::published<Format>.max_code;

  static void expect_code(float value, std::uint8_t want) {
    const std::uint8_t got = encode<Format>(value);
    EXPECT_EQ(got, want) << Format::name << " of " << show(value) << ": got " << show_code(got)
                         << ", want " << show_code(want);
  }

  static std::uint8_t signed_code(bool negative, int magnitude) {
    return test::slow_signed_code<Format>(negative, magnitude);
  }
};
TYPED_TEST_SUITE(CodecTest, test::FormatTypes, test::NameOfType);

TYPED_TEST(CodecTest, EveryCodeDecodesToItsDefinition) {
  for (int code = 0; code < this->code_count; ++code) {
    const float got = decode<TypeParam>(static_cast<std::uint8_t>(code));
    const double want = test::slow_decode<TypeParam>(code);
    if (std::isnan(want)) {
      EXPECT_EQ(bits_of(got), float32::nan_bits) << show_code(code) << " is " << show(got);
    } else {
      EXPECT_EQ(static_cast<double>(got), want) << show_code(code) << " is " << show(got);
      EXPECT_EQ(std::signbit(got), std::signbit(want)) << show_code(code) << " is " << show(got);
    }
  }
}

TYPED_TEST(CodecTest, BitsAboveTheWidthDoNotMatter) {
  for (int byte = 0; byte < 256; ++byte) {
    const float got = decode<TypeParam>(static_cast<std::uint8_t>(byte));
    const float want = decode<TypeParam>(static_cast<std::uint8_t>(byte % this->code_count));
    EXPECT_EQ(bits_of(got), bits_of(want)) << show_code(byte) << ": " << show(got);
  }
}

TYPED_TEST(CodecTest, EveryFiniteCodeSurvivesTheRoundTrip) {
  for (int code = 0; code < this->code_count; ++code) {
    const float value = decode<TypeParam>(static_cast<std::uint8_t>(code));
    // The integer -128 decodes, but the encoder saturates at the largest magnitude, 127.
    if (!std::isfinite(value) || std::fabs(value) > TypeParam::max_value) continue;
    this->expect_code(value, static_cast<std::uint8_t>(code));
  }
}

TYPED_TEST(CodecTest, ValuesAreOrderedAsMagnitudeCodes) {
  for (int code = 0; code < this->max_code; ++code) {
    EXPECT_LT(decode<TypeParam>(static_cast<std::uint8_t>(code)),
              decode<TypeParam>(static_cast<std::uint8_t>(code + 1)))
        << show_code(code);
  }
}

TYPED_TEST(CodecTest, MidpointsGoToTheEvenNeighbour) {
  for (int code = 0; code < this->max_code; ++code) {
    const double below = test::slow_decode<TypeParam>(code);
    const double above = test::slow_decode<TypeParam>(code + 1);
    const auto middle = static_cast<float>((below + above) / 2);
    for (const bool negative : {false, true}) {
      const float sign = negative ? -1.0f : 1.0f;
      const std::uint8_t lower = this->signed_code(negative, code);
      const std::uint8_t upper = this->signed_code(negative, code + 1);
      this->expect_code(sign * middle, code % 2 == 0 ? lower : upper);
      this->expect_code(sign * std::nextafter(middle, 0.0f), lower);
      this->expect_code(sign * std::nextafter(middle, infinity), upper);
      this->expect_code(sign * std::nextafter(static_cast<float>(below), infinity), lower);
      this->expect_code(sign * std::nextafter(static_cast<float>(above), 0.0f), upper);
    }
  }
}

TYPED_TEST(CodecTest, SaturatesAndNeverMakesAnInf) {
  const float largest = TypeParam::max_value;
  for (float value : {largest, std::nextafter(largest, infinity), 1.01f * largest, 1.5f * largest,
                      2 * largest, 1e10f, float32::largest(), infinity}) {
    this->expect_code(value, this->signed_code(false, this->max_code));
    this->expect_code(-value, this->signed_code(true, this->max_code));
  }
}

TYPED_TEST(CodecTest, ZeroAndWhatRoundsToItKeepTheirSign) {
  const float half_step = TypeParam::min_subnormal / 2;
  for (float value : {0.0f, 0x1p-149f, 0x1.fffffcp-127f, 0x1p-126f, half_step}) {
    this->expect_code(value, this->signed_code(false, 0));
    this->expect_code(-value, this->signed_code(true, 0));
  }
}

TYPED_TEST(CodecTest, NanBecomesTheFormatsNanOrZero) {
  const std::uint8_t want = TypeParam::has_nan ? 0x7F : 0;
  for (std::uint32_t bits : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFFFFFFFu}) {
    this->expect_code(float_of(bits), want);
  }
}

// The compiler evaluates the same functions; a table of all codes made at compile time proves it.
template <class Format>
constexpr bool round_trips_at_compile_time() {
  for (int code = 0; code <= Format::max_code; ++code) {
    const float value = decode<Format>(static_cast<std::uint8_t>(code));
    if (encode<Format>(value) != code) return false;
  }
  return true;
}

TYPED_TEST(CodecTest, IsUsableInConstantExpressions) {
  static_assert(round_trips_at_compile_time<TypeParam>());
  constexpr float smallest = decode<TypeParam>(1);
  EXPECT_EQ(smallest, TypeParam::min_subnormal);
}

}  // namespace
}  // namespace mxkern
