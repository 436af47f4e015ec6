// tests/core/divisor_test.cc: multiplications give the quotients of divisions.
#include "mxkern/core/divisor.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/random_bits.h"

namespace mxkern {
namespace {

constexpr int most = std::numeric_limits<int>::max();

static_assert(Divisor{}.quotient(most) == most);
static_assert(Divisor{7}.quotient(48) == 6 && Divisor{7}.quotient(49) == 7);

void expect_quotients(int divisor, int number) {
  ASSERT_EQ(Divisor(divisor).quotient(number), number / divisor) << number << " / " << divisor;
}

// Around every multiple quotients change.
TEST(DivisorTest, SmallDivisorsAndAllTheirFirstMultiples) {
  for (int divisor = 1; divisor <= 300; ++divisor) {
    for (int number = 0; number <= 40 * divisor; ++number) expect_quotients(divisor, number);
    for (int back = 0; back <= 2 * divisor; ++back) expect_quotients(divisor, most - back);
  }
}

TEST(DivisorTest, AnyDivisorAroundItsMultiples) {
  test::RandomBits random(1);
  for (int i = 0; i < 200000; ++i) {
    const int bits = random.between(1, 30);
    const int divisor = random.between(2, static_cast<int>((2u << bits) - 1));
    const int multiple = random.between(0, most / divisor) * divisor;
    expect_quotients(divisor, multiple);
    if (multiple > 0) expect_quotients(divisor, multiple - 1);
    if (multiple < most) expect_quotients(divisor, multiple + 1);
  }
  for (const int divisor : {most, most - 1, 1 << 30, (1 << 30) + 1}) {
    for (const int number : {0, 1, divisor - 1, divisor, most - 1, most}) {
      expect_quotients(divisor, number);
    }
  }
}

}  // namespace
}  // namespace mxkern
