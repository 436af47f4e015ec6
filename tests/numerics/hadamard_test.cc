// tests/numerics/hadamard_test.cc: the random Hadamard transform against the matrix written out.
#include "mxkern/numerics/hadamard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "tests/support/random_bits.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using test::show;

template <int N>
struct Size {
  static constexpr int n = N;
};

struct NameOfSize {
  template <class T>
  static std::string GetName(int) {
    return std::to_string(T::n);
  }
};

template <class SizeType>
class HadamardTest : public ::testing::Test {
 protected:
  static constexpr int n = SizeType::n;
  using Group = std::array<float, n>;

  static bool negated(SignMask signs, int i) {
    return (i < 64 ? signs.low >> i : signs.high >> (i - 64)) % 2 == 1;
  }

  // Row r of (x * sign) H, without the norm, in double precision.
  static double matrix_row(const Group& x, SignMask signs, int r) {
    double sum = 0;
    for (int c = 0; c < n; ++c) {
      const bool minus =
          (std::popcount(static_cast<unsigned>(r & c)) % 2 == 1) != negated(signs, c);
      sum += minus ? -static_cast<double>(x[c]) : static_cast<double>(x[c]);
    }
    return sum;
  }

  // The norm as the nearest float32 to 1 / sqrt(n).
  static float norm() { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(n))); }

  static Group transform(const Group& x, SignMask signs) {
    float y[n];
    for (int i = 0; i < n; ++i) y[i] = x[i];
    random_hadamard(y, signs);
    return to_group(y);
  }

  static Group undo(const Group& x, SignMask signs) {
    float y[n];
    for (int i = 0; i < n; ++i) y[i] = x[i];
    inverse_random_hadamard(y, signs);
    return to_group(y);
  }

  static Group to_group(const float (&y)[n]) {
    Group group;
    for (int i = 0; i < n; ++i) group[i] = y[i];
    return group;
  }

  static std::vector<SignMask> masks() {
    test::RandomBits random(20);
    std::vector<SignMask> all = {
        {0, 0}, {~0ull, ~0ull}, default_sign_mask, {1, 0}, {0, 1ull << 63}};
    for (int i = 0; i < 10; ++i) all.push_back({random.next64(), random.next64()});
    return all;
  }
};

using Sizes = ::testing::Types<Size<16>, Size<32>, Size<64>, Size<128>>;
TYPED_TEST_SUITE(HadamardTest, Sizes, NameOfSize);

// The sums of small integers are exact, so that only the multiplication by the norm rounds.
TYPED_TEST(HadamardTest, IsExactOnSmallIntegers) {
  constexpr int n = TypeParam::n;
  test::RandomBits random(21);
  EXPECT_EQ(bits_of(hadamard_norm(n)), bits_of(this->norm()));
  for (const SignMask& signs : this->masks()) {
    for (int repeat = 0; repeat < 10; ++repeat) {
      typename TestFixture::Group x;
      for (float& value : x) value = static_cast<float>(random.between(-1000, 1000));
      const auto y = this->transform(x, signs);
      for (int r = 0; r < n; ++r) {
        const auto want = static_cast<float>(this->matrix_row(x, signs, r) * this->norm());
        ASSERT_EQ(y[r], want) << "n = " << n << ", row " << r << ": got " << show(y[r]) << ", want "
                              << show(want);
      }
    }
  }
}

// Each unit vector gives a column of the matrix: signs and positions, entry by entry.
TYPED_TEST(HadamardTest, UnitVectorsGiveTheMatrix) {
  constexpr int n = TypeParam::n;
  for (int c = 0; c < n; ++c) {
    typename TestFixture::Group x{};
    x[c] = 1.0f;
    const auto y = this->transform(x, default_sign_mask);
    const bool negated = (0xD7E8 >> (c % 16)) % 2 == 1;
    for (int r = 0; r < n; ++r) {
      const bool minus = (std::popcount(static_cast<unsigned>(r & c)) % 2 == 1) != negated;
      ASSERT_EQ(y[r], minus ? -this->norm() : this->norm()) << "row " << r << ", column " << c;
    }
  }
}

TYPED_TEST(HadamardTest, IsCloseToTheMatrixOnRandomValues) {
  constexpr int n = TypeParam::n;
  test::RandomBits random(22);
  for (const SignMask& signs : this->masks()) {
    typename TestFixture::Group x;
    double magnitudes = 0;
    for (float& value : x) {
      value = float_of(random.float_bits(-12, 12));
      magnitudes += std::fabs(value);
    }
    const auto y = this->transform(x, signs);
    // One rounding a level, one for the norm, half an ulp each.
    const double bound = (std::log2(n) + 2) * 0x1p-24 * magnitudes / std::sqrt(n);
    for (int r = 0; r < n; ++r) {
      const double want = this->matrix_row(x, signs, r) / std::sqrt(n);
      ASSERT_NEAR(y[r], want, bound) << "n = " << n << ", row " << r;
    }
  }
}

// What a pass that only looks for an amax does instead of a transform of 16.
TEST(HadamardMagnitude, IsTheLargestOfTheTransform) {
  test::RandomBits random(25);
  const float infinity = float_of(float32::infinity_bits), nan = float_of(float32::nan_bits);
  for (int repeat = 0; repeat < 20000; ++repeat) {
    const SignMask signs = {random.next64(), 0};
    const int highest = random.between(-140, 127);
    float x[16], y[16], relative[16];
    for (float& value : x) {
      value = float_of(random.float_bits(std::max(highest - random.between(0, 30), -126),
                                         std::max(highest, -126)));
      if (random.between(0, 9) == 0) value = random.between(0, 1) == 0 ? 0.0f : -0.0f;
      if (repeat % 3 == 0) value = float_of(bits_of(value) & 0xFFFF0000u);
      if (repeat % 5 == 0 && random.between(0, 9) == 0) value = -infinity;
      if (repeat % 7 == 0 && random.between(0, 9) == 0) value = nan;
    }
    for (int i = 0; i < 16; ++i) y[i] = flip_sign(x[i], signs.bit(i));
    hadamard_butterflies(y);
    float want = 0.0f;
    for (const float value : y) {
      if (std::fabs(value) > want) want = std::fabs(value);
    }
    relative_signs(signs, relative);
    const float got = hadamard_magnitude(x, relative);
    ASSERT_EQ(bits_of(got), bits_of(want))
        << "repeat " << repeat << ": got " << show(got) << ", want " << show(want);
  }
}

// The order of the float32 sums is part of the rule: strides grow, so that the transform of a group
// is that of its halves, then their sums and differences.
template <std::size_t N>
std::array<float, N> by_halves(const std::array<float, N>& x) {
  if constexpr (N == 1) {
    return x;
  } else {
    std::array<float, N / 2> first;
    std::array<float, N / 2> second;
    for (std::size_t i = 0; i < N / 2; ++i) {
      first[i] = x[i];
      second[i] = x[N / 2 + i];
    }
    first = by_halves(first);
    second = by_halves(second);
    std::array<float, N> y;
    for (std::size_t i = 0; i < N / 2; ++i) {
      y[i] = first[i] + second[i];
      y[N / 2 + i] = first[i] - second[i];
    }
    return y;
  }
}

TYPED_TEST(HadamardTest, SumsInTheOrderOfTheRule) {
  constexpr int n = TypeParam::n;
  test::RandomBits random(23);
  for (int repeat = 0; repeat < 200; ++repeat) {
    typename TestFixture::Group x;
    for (float& value : x) value = float_of(random.float_bits(-12, 12));
    const auto got = this->transform(x, {0, 0});
    const auto want = by_halves(x);
    for (int r = 0; r < n; ++r) {
      const float scaled = want[r] * this->norm();
      ASSERT_EQ(bits_of(got[r]), bits_of(scaled))
          << "n = " << n << ", row " << r << ": got " << show(got[r]) << ", want " << show(scaled);
    }
  }
}

TYPED_TEST(HadamardTest, InverseGivesTheGroupBack) {
  constexpr int n = TypeParam::n;
  constexpr bool exact = n == 16 || n == 64;  // their norm is a power of two
  test::RandomBits random(24);
  for (const SignMask& signs : this->masks()) {
    typename TestFixture::Group x;
    for (float& value : x) value = static_cast<float>(random.between(-500, 500));
    const auto back = this->undo(this->transform(x, signs), signs);
    for (int i = 0; i < n; ++i) {
      if (exact) {
        ASSERT_EQ(back[i], x[i]) << "n = " << n << ", element " << i;
      } else {
        // Two norms and two transforms of at most n * 500 / sqrt(n), as above.
        ASSERT_NEAR(back[i], x[i], 2 * (std::log2(n) + 2) * 0x1p-24 * 500 * n)
            << "n = " << n << ", element " << i;
      }
    }
  }
}

TEST(SignMaskTest, BitsAreThoseOfTheTwoWords) {
  const SignMask signs = {0x8000000000000001u, 0x4000000000000002u};
  for (int i = 0; i < 128; ++i) {
    const bool set = i == 0 || i == 63 || i == 65 || i == 126;
    EXPECT_EQ(signs.bit(i), set ? 1u : 0u) << i;
  }
}

TEST(SignMaskTest, DefaultRepeatsTheMaskOfSixteen) {
  for (int i = 0; i < 128; ++i) {
    EXPECT_EQ(default_sign_mask.bit(i), 0xD7E8u >> (i % 16) & 1u) << i;
  }
}

TEST(FlipSignTest, NegatesExactlyWhatItShould) {
  for (float value : {0.0f, 1.5f, -2.0f, 0x1p-149f, float32::largest()}) {
    EXPECT_EQ(bits_of(flip_sign(value, 0)), bits_of(value)) << show(value);
    EXPECT_EQ(bits_of(flip_sign(value, 1)), bits_of(value) ^ 0x80000000u) << show(value);
  }
}

}  // namespace
}  // namespace mxkern
