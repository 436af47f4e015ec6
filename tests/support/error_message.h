// tests/support/error_message.h: the text of what a call throws.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace mxkern::test {

template <class Call>
std::string error_message(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

// The call throws a Failure whose text has `says` in it.
template <class Failure = std::exception, class Call>
void expect_failure(const std::string& says, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; wanted: " << says;
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find(says), std::string::npos)
        << "got: " << failure.what() << "\nwanted: " << says;
  }
}

}  // namespace mxkern::test
