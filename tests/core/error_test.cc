// tests/core/error_test.cc: what check throws, and the exceptions' families.
#include "mxkern/core/error.h"

#include <gtest/gtest.h>

#include <string>

namespace mxkern {
namespace {

TEST(Check, JoinsItsPartsIntoTheMessage) {
  try {
    check(false, "f: x has ", 3, " rows; expected ", 2.5, std::string("; slice it"));
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "f: x has 3 rows; expected 2.5; slice it");
  }
}

TEST(Check, ThrowsTheFailureThatWasAsked) {
  EXPECT_THROW(check<InvalidType>(false, "wrong type"), InvalidType);
  EXPECT_THROW(check<Unsupported>(false, "not here"), Unsupported);
  EXPECT_NO_THROW(check(true, "unused"));
}

TEST(Errors, BelongToTheStandardFamilies) {
  EXPECT_THROW(throw InvalidArgument("value"), std::invalid_argument);
  EXPECT_THROW(throw InvalidType("type"), InvalidArgument);
  EXPECT_THROW(throw Unsupported("machine"), std::runtime_error);
}

}  // namespace
}  // namespace mxkern
