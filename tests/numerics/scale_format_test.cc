// tests/numerics/scale_format_test.cc: all bytes of E8M0 and UE4M3.
#include "mxkern/numerics/scale_format.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/show.h"
#include "tests/support/slow_codec.h"

namespace mxkern {
namespace {

using test::show;

TEST(E8M0Test, EveryByteIsItsPowerOfTwo) {
  for (int byte = 0; byte < 255; ++byte) {
    const float got = E8M0::decode(static_cast<std::uint8_t>(byte));
    EXPECT_EQ(static_cast<double>(got), std::ldexp(1.0, byte - 127)) << byte << ": " << show(got);
  }
  EXPECT_EQ(bits_of(E8M0::decode(255)), float32::nan_bits);
  EXPECT_EQ(E8M0::nan_byte, 255);
  EXPECT_EQ(E8M0::max_byte, 254);
}

TEST(E8M0Test, ReciprocalIsExact) {
  for (int byte = 0; byte < 255; ++byte) {
    const auto scale = static_cast<std::uint8_t>(byte);
    const float got = E8M0::reciprocal(scale);
    EXPECT_EQ(static_cast<double>(got), std::ldexp(1.0, 127 - byte)) << byte << ": " << show(got);
    EXPECT_EQ(got * E8M0::decode(scale), 1.0f) << byte;
  }
}

TEST(UE4M3Test, EveryByteIsTheE4M3MagnitudeOfItsLowBits) {
  for (int byte = 0; byte < 256; ++byte) {
    const float got = UE4M3::decode(static_cast<std::uint8_t>(byte));
    const double want = test::slow_decode<E4M3>(byte & 0x7F);
    if (std::isnan(want)) {
      EXPECT_EQ(bits_of(got), float32::nan_bits) << byte << ": " << show(got);
    } else {
      EXPECT_EQ(static_cast<double>(got), want) << byte << ": " << show(got);
      EXPECT_FALSE(std::signbit(got)) << byte;
    }
  }
  EXPECT_EQ(UE4M3::nan_byte, 0x7F);
  EXPECT_EQ(UE4M3::max_byte, 0x7E);
}

}  // namespace
}  // namespace mxkern
