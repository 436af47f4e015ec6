// tests/numerics/codec_values_test.cc: encode against independent references, all 16-bit values and
// millions of float32 patterns.
#include <gtest/gtest.h>

#include <cmath>

#include "mxkern/core/dtype.h"
#include "mxkern/numerics/codec.h"
#include "tests/support/format_list.h"
#include "tests/support/random_bits.h"
#include "tests/support/show.h"
#include "tests/support/slow_codec.h"

namespace mxkern {
namespace {

using test::show;
using test::show_code;

template <class Format>
class CodecValuesTest : public ::testing::Test {
 protected:
  // Encodes all 65536 values of a 16-bit type, and compares with the search over all codes.
  template <class Half>
  static void expect_all_encode() {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const float value = to_float(Half{static_cast<std::uint16_t>(bits)});
      if (std::isnan(value)) continue;
      const std::uint8_t got = encode<Format>(value);
      const std::uint8_t want = test::slow_encode<Format>(value);
      if (got != want) {
        FAIL() << Format::name << " of " << show(value) << ": got " << show_code(got) << ", want "
               << show_code(want);
      }
    }
  }

  static void expect_encodes(const test::ThresholdCodec<Format>& reference, std::uint32_t bits) {
    const float value = float_of(bits);
    if (std::isnan(value)) return;
    const std::uint8_t got = encode<Format>(value);
    const std::uint8_t want = reference.encode(bits);
    if (got != want) {
      FAIL() << Format::name << " of " << show(value) << ": got " << show_code(got) << ", want "
             << show_code(want);
    }
  }
};
TYPED_TEST_SUITE(CodecValuesTest, test::FormatTypes, test::NameOfType);

TYPED_TEST(CodecValuesTest, EveryBfloat16IsTheNearestCode) {
  this->template expect_all_encode<bfloat16>();
}

TYPED_TEST(CodecValuesTest, EveryFloat16IsTheNearestCode) {
  this->template expect_all_encode<float16>();
}

TYPED_TEST(CodecValuesTest, RandomFloat32IsTheNearestCode) {
  const test::ThresholdCodec<TypeParam> reference;
  test::RandomBits random(5);
  const int low = TypeParam::min_exponent - TypeParam::mantissa_bits - 3;
  const int high = TypeParam::max_exponent + 2;
  for (int i = 0; i < 10'000'000 && !this->HasFatalFailure(); ++i) {
    this->expect_encodes(reference, random.float_bits(low, high));
  }
  for (int i = 0; i < 10'000'000 && !this->HasFatalFailure(); ++i) {
    this->expect_encodes(reference, random.next());
  }
}

// Around every bit pattern at which the code changes, all patterns within reach of a wrong shift.
TYPED_TEST(CodecValuesTest, NeighbourhoodsOfThresholdsAreExact) {
  const test::ThresholdCodec<TypeParam> reference;
  for (const std::uint32_t threshold : reference.first_above()) {
    for (std::uint32_t bits = threshold - 2000; bits != threshold + 2000; ++bits) {
      this->expect_encodes(reference, bits);
      this->expect_encodes(reference, bits | float32::sign_mask);
      if (this->HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace mxkern
