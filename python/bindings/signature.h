// bindings/signature.h: the keyword arguments of functions that quantize, in one table.
#pragma once

#include <array>
#include <string>
#include <utility>

#include "extents.h"

namespace mxkern::bindings {

// Their order is that of the table in mxkern/values/keywords.py, which has their defaults.
enum class Keyword : int {
  scale_rule,
  rounding,
  seed,
  offset,
  block,
  hadamard,
  sign_mask,
  four_over_six,
  hadamard_rows,
  scale_layout,
  amax,
  tensor_scale,
  out,
  stream,
  random_bits,
  subnormals,
  saturate,
  threshold,
  scales,
  block_amax,
  axis,
  count
};
inline constexpr int keyword_count = static_cast<int>(Keyword::count);
// Those from here on are for mxkern/ops/custom_calls.py, whatever the scheme is.
inline constexpr int custom_begin = static_cast<int>(Keyword::random_bits);
// Those that become QuantizeOptions.
inline constexpr int option_count = static_cast<int>(Keyword::hadamard_rows);

// The values of all keywords but those for custom_calls: what a caller gave, and defaults.
struct Given {
  std::array<nanobind::handle, custom_begin> values;
  bool has_options = false;  // one of QuantizeOptions is not its default
  bool has_custom = false;   // one of those for custom_calls is not its default

  nanobind::handle operator[](Keyword keyword) const {
    return values[static_cast<std::size_t>(keyword)];
  }
};

// The name of a function and the keywords that it takes.
class Signature {
 public:
  Signature(std::string function, Objects names, Objects defaults, const Objects& taken)
      : function(std::move(function)), names(std::move(names)), defaults_(std::move(defaults)) {
    for (const nanobind::object& name : taken) {
      const int position = position_of_name(name, this->names);
      if (position < 0) nanobind::raise_type_error("no such keyword");
      takes_[static_cast<std::size_t>(position)] = true;
    }
  }

  Given read(const nanobind::dict& keywords) const {
    Given given;
    for (int i = 0; i < custom_begin; ++i) given.values[i] = defaults_[i];
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(keywords.ptr(), &at, &key, &value);) {
      const int position = position_of_name(key, names);
      if (position < 0 || !takes_[static_cast<std::size_t>(position)]) {
        // Python formats the name, which need not be valid UTF-8.
        PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'",
                     function.c_str(), key);
        nanobind::raise_python_error();
      }
      const bool is_default = nanobind::handle(value).is(defaults_[position]);
      if (position >= custom_begin) {
        given.has_custom = given.has_custom || !is_default;
        continue;
      }
      given.values[static_cast<std::size_t>(position)] = value;
      given.has_options = given.has_options || (position < option_count && !is_default);
    }
    return given;
  }

  const std::string function;
  const Objects names;

 private:
  Objects defaults_;
  std::array<bool, keyword_count> takes_{};
};

}  // namespace mxkern::bindings
