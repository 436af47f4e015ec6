// tests/numerics/codec_lanes_test.cc: the numerics on vectors of 4, 8 and 16 floats give each lane
// the bits that a scalar gets.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "mxkern/numerics/codec.h"
#include "mxkern/numerics/hadamard.h"
#include "mxkern/numerics/rounding.h"
#include "tests/support/format_list.h"
#include "tests/support/random_bits.h"
#include "tests/support/show.h"

namespace mxkern {
namespace test {

using Floats4 = float __attribute__((vector_size(16)));
using Floats8 = float __attribute__((vector_size(32)));
using Floats16 = float __attribute__((vector_size(64)));
using Bits4 = std::uint32_t __attribute__((vector_size(16)));
using Bits8 = std::uint32_t __attribute__((vector_size(32)));
using Bits16 = std::uint32_t __attribute__((vector_size(64)));

}  // namespace test

#define MXKERN_TEST_LANES(FloatVector, BitVector) \
  template <>                                     \
  struct Lanes<FloatVector> {                     \
    using Bits = BitVector;                       \
  };                                              \
  template <>                                     \
  struct Lanes<BitVector> {                       \
    using Float = FloatVector;                    \
  };
MXKERN_TEST_LANES(test::Floats4, test::Bits4)
MXKERN_TEST_LANES(test::Floats8, test::Bits8)
MXKERN_TEST_LANES(test::Floats16, test::Bits16)
#undef MXKERN_TEST_LANES

namespace {

using test::show;
using test::show_code;

template <int Count>
struct Vector;
template <>
struct Vector<4> {
  using Floats = test::Floats4;
};
template <>
struct Vector<8> {
  using Floats = test::Floats8;
};
template <>
struct Vector<16> {
  using Floats = test::Floats16;
};

// Calls check with a random vector of Count lanes, none of them NaN, and a vector of random words.
template <class Format, int Count, class Check>
void for_random_vectors(Check check) {
  using Floats = typename Vector<Count>::Floats;
  using Bits = typename Lanes<Floats>::Bits;
  test::RandomBits random(8);
  for (int i = 0; i < 50'000 && !::testing::Test::HasFatalFailure(); ++i) {
    Bits bits{};
    Bits words{};
    for (int lane = 0; lane < Count; ++lane) {
      bits[lane] = random.float_bits(Format::min_exponent - Format::mantissa_bits - 33,
                                     Format::max_exponent + 2);
      if (random.between(0, 7) == 0) bits[lane] = random.next();
      if ((bits[lane] & float32::magnitude_mask) > float32::infinity_bits) bits[lane] &= 1u << 31;
      words[lane] = random.next() >> 16;
    }
    check(float_of<Bits>(bits), words);
  }
}

template <class Format, int Count>
void expect_encode_lanes() {
  for_random_vectors<Format, Count>([](auto values, auto) {
    const auto codes = encode_lanes<Format>(values);
    for (int lane = 0; lane < Count; ++lane) {
      const std::uint32_t want = encode<Format>(values[lane]);
      if (codes[lane] != want) {
        FAIL() << Format::name << ", lane " << lane << " of " << Count << ", " << show(values[lane])
               << ": got " << show_code(codes[lane]) << ", want " << show_code(want);
      }
    }
  });
}

template <class Format, int Count>
void expect_stochastic_lanes() {
  for_random_vectors<Format, Count>([](auto values, auto words) {
    const auto codes = encode_stochastic_lanes<Format>(values, words);
    for (int lane = 0; lane < Count; ++lane) {
      const float value = values[lane];
      const std::uint32_t word = words[lane];
      const std::uint32_t want = encode_stochastic_lanes<Format>(value, word);
      if (codes[lane] != want) {
        FAIL() << Format::name << ", lane " << lane << " of " << Count << ", " << show(value)
               << ", random " << test::show_bits(word) << ": got " << show_code(codes[lane])
               << ", want " << show_code(want);
      }
    }
  });
}

template <class Format, int Count>
void expect_decode_lanes() {
  using Bits = typename Lanes<typename Vector<Count>::Floats>::Bits;
  for (std::uint32_t first = 0; first < 256; first += Count) {
    Bits codes{};
    for (int lane = 0; lane < Count; ++lane) codes[lane] = first + static_cast<unsigned>(lane);
    const auto values = decode_lanes<Format>(codes);
    for (int lane = 0; lane < Count; ++lane) {
      const float want = decode<Format>(static_cast<std::uint8_t>(codes[lane]));
      const float got = values[lane];
      EXPECT_EQ(bits_of(got), bits_of(want))
          << Format::name << ", lane " << lane << " of " << Count << ", code "
          << show_code(codes[lane]) << ": got " << show(got) << ", want " << show(want);
    }
  }
}

template <class Format>
class CodecLanesTest : public ::testing::Test {};
TYPED_TEST_SUITE(CodecLanesTest, test::FormatTypes, test::NameOfType);

TYPED_TEST(CodecLanesTest, EncodeIsTheScalarInEachLane) {
  expect_encode_lanes<TypeParam, 4>();
  expect_encode_lanes<TypeParam, 8>();
  expect_encode_lanes<TypeParam, 16>();
}

TYPED_TEST(CodecLanesTest, StochasticEncodeIsTheScalarInEachLane) {
  expect_stochastic_lanes<TypeParam, 4>();
  expect_stochastic_lanes<TypeParam, 8>();
  expect_stochastic_lanes<TypeParam, 16>();
}

TYPED_TEST(CodecLanesTest, DecodeIsTheScalarInEachLane) {
  expect_decode_lanes<TypeParam, 4>();
  expect_decode_lanes<TypeParam, 8>();
  expect_decode_lanes<TypeParam, 16>();
}

// Sixteen groups at once, group g in lane g.
TEST(HadamardLanesTest, ButterfliesAreTheScalarInEachLane) {
  constexpr int n = 32;
  test::RandomBits random(9);
  test::Floats16 together[n] = {};
  float alone[16][n];
  for (int i = 0; i < n; ++i) {
    for (int lane = 0; lane < 16; ++lane) {
      alone[lane][i] = float_of(random.float_bits(-10, 10));
      together[i][lane] = alone[lane][i];
    }
  }
  hadamard_butterflies(together);
  for (int lane = 0; lane < 16; ++lane) {
    hadamard_butterflies(alone[lane]);
    for (int i = 0; i < n; ++i) {
      const float got = together[i][lane];
      EXPECT_EQ(bits_of(got), bits_of(alone[lane][i]))
          << "element " << i << ", lane " << lane << ": got " << show(got) << ", want "
          << show(alone[lane][i]);
    }
  }
}

}  // namespace
}  // namespace mxkern
