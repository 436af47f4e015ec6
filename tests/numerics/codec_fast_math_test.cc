// tests/numerics/codec_fast_math_test.cc: the header numerics in a program that is compiled with
// -ffast-math, as tests/CMakeLists.txt does with this file.
#include <gtest/gtest.h>

#include "mxkern/numerics/codec.h"
#include "mxkern/numerics/scheme.h"

namespace mxkern {
namespace {

#if !defined(__FAST_MATH__)
#error "tests/CMakeLists.txt compiles this file with -ffast-math"
#endif

float of_bits(std::uint32_t bits) {
  volatile std::uint32_t unknown = bits;
  return float_of(std::uint32_t{unknown});
}

template <class Format>
void expect_poison() {
  for (const std::uint32_t nan : {0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFFFFFFFFu}) {
    EXPECT_EQ(encode<Format>(of_bits(nan)), Format::poison_code) << Format::name << " " << nan;
  }
  const std::uint8_t largest = encode<Format>(Format::max_value);
  EXPECT_EQ(encode<Format>(of_bits(0x7F800000u)), largest) << Format::name;
}

TEST(CodecUnderFastMath, NanIsPoison) {
  expect_poison<E4M3>();
  expect_poison<E5M2>();
  expect_poison<E3M2>();
  expect_poison<E2M3>();
  expect_poison<E2M1>();
  expect_poison<INT8>();
}

}  // namespace
}  // namespace mxkern
