// bindings/options/offset_options.h: options whose offset is the value of an array.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <utility>

#include "casters.h"

namespace mxkern::bindings {

// They keep the array alive, and `numbers` say nothing of it.
struct OffsetOptions : QuantizeOptions {
  OffsetOptions(const QuantizeOptions& options, nanobind::object array, Address address)
      : QuantizeOptions(options), array(std::move(array)) {
    offset_at = static_cast<const std::uint64_t*>(address.value);
  }

  QuantizeOptions without_array() const {
    QuantizeOptions options = *this;
    options.offset_at = nullptr;
    return options;
  }

  nanobind::object array;
};

}  // namespace mxkern::bindings
