// tests/numerics/named_test.cc: values by their names, and what is said of other names.
#include "mxkern/numerics/named.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tests/support/error_message.h"

namespace mxkern {
namespace {

static_assert(scheme_of("nvfp4") == Scheme::nvfp4);
static_assert(scale_rule_of("floor") == ScaleRule::floor);
static_assert(rounding_of("stochastic") == Rounding::stochastic);

TEST(Named, EveryNameIsFound) {
  for (const Scheme scheme : all_schemes) EXPECT_EQ(scheme_of(name_of(scheme)), scheme);
  for (const ScaleRule rule : all_scale_rules) EXPECT_EQ(scale_rule_of(name_of(rule)), rule);
  for (const Rounding rounding : all_roundings) EXPECT_EQ(rounding_of(name_of(rounding)), rounding);
}

std::string refused(std::string_view name) {
  return test::error_message([&] { scheme_of(name); });
}

TEST(Named, AnUnknownNameIsRefusedWithTheNearestOnes) {
  const std::string names =
      "' is no scheme; expected mxfp8_e4m3, mxfp8_e5m2, mxfp6_e3m2, mxfp6_e2m3, mxfp4, mxint8, "
      "nvfp4";
  EXPECT_EQ(refused("mxfp9"), "scheme_of: 'mxfp9" + names + "; did you mean mxfp4?");
  EXPECT_EQ(refused("mxfp8"),
            "scheme_of: 'mxfp8" + names + "; did you mean mxfp8_e4m3 or mxfp8_e5m2?");
  EXPECT_EQ(refused("MXFP8-E4M3"), "scheme_of: 'MXFP8-E4M3" + names + "; did you mean mxfp8_e4m3?");
  EXPECT_EQ(refused("mxint4"), "scheme_of: 'mxint4" + names + "; did you mean mxint8?");
  EXPECT_EQ(refused("nvfp"), "scheme_of: 'nvfp" + names + "; did you mean nvfp4?");
  EXPECT_EQ(refused("hello"), "scheme_of: 'hello" + names);
  EXPECT_EQ(refused(""), "scheme_of: '" + names);
  const std::string long_name(1000, 'm');
  EXPECT_EQ(refused(long_name), "scheme_of: '" + long_name + names);
  EXPECT_EQ(refused(std::string_view("mxfp4", 4)),
            "scheme_of: 'mxfp" + names +
                "; did you mean mxfp8_e4m3 or mxfp8_e5m2 or mxfp6_e3m2 or mxfp6_e2m3 or mxfp4?");
  EXPECT_EQ(test::error_message([] { scale_rule_of("flor"); }),
            "scale_rule_of: 'flor' is no scale rule; expected rceil, floor, ceil, even; did you "
            "mean floor?");
}

}  // namespace
}  // namespace mxkern
