// mxkern/numerics/named.h: schemes, scale rules and rounding modes by their names.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "mxkern/core/error.h"
#include "mxkern/numerics/rounding.h"
#include "mxkern/numerics/scale_rule.h"
#include "mxkern/numerics/visit.h"

namespace mxkern {
namespace detail {

// How unlike a name is what was given: the letters to change, put in or leave out; less than one
// where it is how the name begins.
inline double unlikeness(std::string_view given, std::string_view name) {
  constexpr std::size_t longest = 32;
  if (given.empty() || given.size() > longest || name.size() > longest) return 1e9;
  if (name.starts_with(given)) return 0.5;
  int row[longest + 1];
  for (std::size_t j = 0; j <= name.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 0; i < given.size(); ++i) {
    int corner = std::exchange(row[0], static_cast<int>(i + 1));
    for (std::size_t j = 0; j < name.size(); ++j) {
      const int kept = corner + (given[i] == name[j] ? 0 : 1);
      corner = row[j + 1];
      row[j + 1] = std::min({kept, corner + 1, row[j] + 1});
    }
  }
  return row[name.size()];
}

template <class T, std::size_t Count>
[[noreturn]] void refuse_name(const char* function, const char* kind, std::string_view given,
                              const T (&all)[Count]) {
  std::string folded(given);
  for (char& letter : folded) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
    if (letter == '-') letter = '_';
  }
  double least = static_cast<double>(folded.size()) / 2;  // the rest of a name is no hint
  for (const T value : all) least = std::min(least, unlikeness(folded, name_of(value)));
  std::string names, near;
  for (const T value : all) {
    names.append(names.empty() ? "" : ", ").append(name_of(value));
    if (unlikeness(folded, name_of(value)) > least) continue;
    near.append(near.empty() ? "; did you mean " : " or ").append(name_of(value));
  }
  throw InvalidArgument(concatenate(function, ": '", given, "' is no ", kind, "; expected ", names,
                                    near, near.empty() ? "" : "?"));
}

template <class T, std::size_t Count>
constexpr T named(const char* function, const char* kind, std::string_view name,
                  const T (&all)[Count]) {
  for (const T value : all) {
    if (name == name_of(value)) return value;
  }
  refuse_name(function, kind, name, all);
}

}  // namespace detail

// The value that name_of calls so. Throws InvalidArgument with the names that there are, and the
// nearest ones; in a constant expression an unknown name does not compile.
constexpr Scheme scheme_of(std::string_view name) {
  return detail::named("scheme_of", "scheme", name, all_schemes);
}
constexpr ScaleRule scale_rule_of(std::string_view name) {
  return detail::named("scale_rule_of", "scale rule", name, all_scale_rules);
}
constexpr Rounding rounding_of(std::string_view name) {
  return detail::named("rounding_of", "rounding", name, all_roundings);
}

}  // namespace mxkern
