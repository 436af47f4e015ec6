// tests/support/error_message.h: the text of what a call throws.
#pragma once

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

}  // namespace mxkern::test
