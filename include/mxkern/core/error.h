// mxkern/core/error.h: what the library throws, and the check at every public entry.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>

#include "mxkern/core/platform.h"

namespace mxkern {

// An argument of a right type has a wrong value. ValueError in Python.
struct MXKERN_API InvalidArgument : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// An argument has an element type that the operation does not take. TypeError in Python.
struct MXKERN_API InvalidType : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

// The build or the machine lacks what the call needs. RuntimeError in Python.
struct MXKERN_API Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Parts>
std::string concatenate(const Parts&... parts) {
  std::ostringstream text;
  text.imbue(std::locale::classic());  // [1, 12345, 64], whatever the program's locale
  (text << ... << parts);
  return text.str();
}

// Throws `Failure` unless condition holds. The parts say function, argument, got, wanted, way out.
template <class Failure = InvalidArgument, class... Parts>
void check(bool condition, const Parts&... parts) {
  if (!condition) throw Failure(concatenate(parts...));
}

// Whether the value is one of its enumeration's, which are in `all`; a cast can make others.
template <class T, std::size_t Count>
constexpr bool is_listed(T value, const T (&all)[Count]) {
  return std::find(std::begin(all), std::end(all), value) != std::end(all);
}

}  // namespace mxkern
