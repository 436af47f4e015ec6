// tests/numerics/visit_test.cc: the schemes' facts, names and types agree with each other.
#include "mxkern/numerics/visit.h"

#include <gtest/gtest.h>

#include <iterator>
#include <set>
#include <string>

#include "tests/support/format_list.h"

namespace mxkern {
namespace {

struct Published {
  Scheme scheme;
  const char* name;
  const char* format;
  const char* scale_format;
  int bits;
  int block;
  int block_bytes;
  bool has_tensor_scale;
  float max_value;
  float min_subnormal;
  int nan_scale;
};

// OCP MX v1.0, table 1, and NVFP4.
constexpr Published schemes[] = {
    {Scheme::mxfp8_e4m3, "mxfp8_e4m3", "e4m3", "e8m0", 8, 32, 32, false, 448, 0x1p-9f, 255},
    {Scheme::mxfp8_e5m2, "mxfp8_e5m2", "e5m2", "e8m0", 8, 32, 32, false, 57344, 0x1p-16f, 255},
    {Scheme::mxfp6_e3m2, "mxfp6_e3m2", "e3m2", "e8m0", 6, 32, 24, false, 28, 0x1p-4f, 255},
    {Scheme::mxfp6_e2m3, "mxfp6_e2m3", "e2m3", "e8m0", 6, 32, 24, false, 7.5f, 0x1p-3f, 255},
    {Scheme::mxfp4, "mxfp4", "e2m1", "e8m0", 4, 32, 16, false, 6, 0.5f, 255},
    {Scheme::mxint8, "mxint8", "int8", "e8m0", 8, 32, 32, false, 1.984375f, 0x1p-6f, 255},
    {Scheme::nvfp4, "nvfp4", "e2m1", "ue4m3", 4, 16, 8, true, 6, 0.5f, 0x7F},
};

TEST(FactsOf, AreThePublishedOnes) {
  ASSERT_EQ(std::size(schemes), std::size(all_schemes)) << "a scheme is missing in this test";
  for (const Published& want : schemes) {
    const SchemeFacts got = facts_of(want.scheme);
    EXPECT_STREQ(got.name, want.name);
    EXPECT_STREQ(got.name, name_of(want.scheme));
    EXPECT_STREQ(got.format, want.format) << want.name;
    EXPECT_STREQ(got.scale_format, want.scale_format) << want.name;
    EXPECT_EQ(got.bits, want.bits) << want.name;
    EXPECT_EQ(got.block, want.block) << want.name;
    EXPECT_EQ(got.block_bytes, want.block_bytes) << want.name;
    EXPECT_EQ(got.has_tensor_scale, want.has_tensor_scale) << want.name;
    EXPECT_EQ(got.max_value, want.max_value) << want.name;
    EXPECT_EQ(got.min_subnormal, want.min_subnormal) << want.name;
    EXPECT_EQ(got.nan_scale, want.nan_scale) << want.name;
  }
}

TEST(AllSchemes, HoldEachSchemeOnceAndInOrder) {
  std::set<std::string> names;
  int position = 0;
  for (Scheme scheme : all_schemes) {
    EXPECT_EQ(static_cast<int>(scheme), position++) << name_of(scheme);
    EXPECT_TRUE(names.insert(name_of(scheme)).second) << name_of(scheme) << " is there twice";
  }
}

template <class Scheme>
class VisitTest : public ::testing::Test {};
TYPED_TEST_SUITE(VisitTest, test::SchemeTypes, test::NameOfType);

TYPED_TEST(VisitTest, FindsTheTypeOfTheScheme) {
  const bool found =
      visit(TypeParam::id, [](auto type) { return std::is_same_v<decltype(type), TypeParam>; });
  EXPECT_TRUE(found) << TypeParam::name;
}

}  // namespace
}  // namespace mxkern
