// tests/structure/cutlass_codes_test.cc: codes and scales mean to CUTLASS what they mean here, and
// packed codes lie where its iterators look for them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "cute/pointer.hpp"
#include "cutlass/float8.h"
#include "cutlass/float_subbyte.h"
#include "mxkern/numerics/codec.h"
#include "mxkern/numerics/scale_format.h"
#include "mxkern/tensor/packing.h"
#include "tests/support/random_bits.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

template <class FormatType, class CutlassType>
struct Pair {
  using Format = FormatType;
  using Cutlass = CutlassType;
};

template <class P>
class CutlassCodes : public ::testing::Test {};

using Elements =
    ::testing::Types<Pair<E4M3, cutlass::float_e4m3_t>, Pair<E5M2, cutlass::float_e5m2_t>,
                     Pair<E3M2, cutlass::float_e3m2_t>, Pair<E2M3, cutlass::float_e2m3_t>,
                     Pair<E2M1, cutlass::float_e2m1_t>>;
TYPED_TEST_SUITE(CutlassCodes, Elements);

// The same value, or both NaN.
::testing::AssertionResult same_value(float ours, float theirs) {
  if (std::isnan(ours) ? std::isnan(theirs) : bits_of(ours) == bits_of(theirs)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << test::show(ours) << " here, " << test::show(theirs);
}

TYPED_TEST(CutlassCodes, EveryValue) {
  using Format = typename TypeParam::Format;
  using Cutlass = typename TypeParam::Cutlass;
  for (int code = 0; code < 1 << Format::bits; ++code) {
    const auto theirs = static_cast<float>(Cutlass::bitcast(static_cast<std::uint8_t>(code)));
    EXPECT_TRUE(same_value(decode<Format>(static_cast<std::uint8_t>(code)), theirs))
        << Format::name << " " << test::show_code(static_cast<std::uint8_t>(code));
  }
}

TYPED_TEST(CutlassCodes, EveryPlaceOfPackedCodes) {
  using Format = typename TypeParam::Format;
  using Cutlass = typename TypeParam::Cutlass;
  constexpr int count = 384;
  test::RandomBits random(5);
  std::vector<std::uint8_t> codes(count), bytes(count * Format::bits / 8);
  for (auto& code : codes)
    code = static_cast<std::uint8_t>(random.next() & ((1 << Format::bits) - 1));
  pack<Format::bits>(codes.data(), count, bytes.data());
  for (int i = 0; i < count; ++i) {
    const Cutlass theirs = cute::recast_ptr<Cutlass>(bytes.data())[i];
    EXPECT_EQ(theirs.raw(), codes[static_cast<std::size_t>(i)]) << Format::name << " at " << i;
  }
}

TEST(CutlassScales, EveryValue) {
  for (int byte = 0; byte < 256; ++byte) {
    const auto code = static_cast<std::uint8_t>(byte);
    EXPECT_TRUE(
        same_value(E8M0::decode(code), static_cast<float>(cutlass::float_ue8m0_t::bitcast(code))))
        << "E8M0 " << test::show_code(code);
    if (byte >= 0x80) continue;  // UE4M3 has no sign
    EXPECT_TRUE(
        same_value(UE4M3::decode(code), static_cast<float>(cutlass::float_ue4m3_t::bitcast(code))))
        << "UE4M3 " << test::show_code(code);
  }
}

}  // namespace
}  // namespace mxkern
