// check/quantize.h: what the options of a quantization ask for, and the checks of them.
#pragma once

#include <cstdint>

#include "check/arguments.h"
#include "mxkern/quantize.h"

namespace mxkern {

// Valid options for a scheme, on this device; x has this shape as the direction sees it.
void check_quantize_options(const char* function, Scheme scheme, Device device,
                            const QuantizeOptions& options, const Shape& shape);

// A transform of whole groups along an axis of this extent, or none.
void check_transform(const char* function, const Hadamard& hadamard, std::int64_t extent);

// Whether the amax of NVFP4 is computed from x.
inline bool finds_amax(Scheme scheme, const QuantizeOptions& options) {
  return facts_of(scheme).has_tensor_scale && options.amax == nullptr &&
         options.tensor_scale == nullptr;
}

// Calls visitor with each scalar that is given.
template <class Visitor>
void visit_scalars(const QuantizeOptions& options, Visitor&& visitor) {
  const auto visit = [&](const char* argument, const auto* scalar) {
    if (scalar != nullptr) visitor(Occupied(argument, "", scalar, sizeof(*scalar)));
  };
  visit("amax", options.amax);
  visit("tensor_scale", options.tensor_scale);
  visit("offset_at", options.offset_at);
}

// With the offset that lies in memory, as the CPU reads it.
inline QuantizeOptions with_offset(QuantizeOptions options) {
  if (options.offset_at != nullptr) options.offset = *options.offset_at;
  return options;
}

}  // namespace mxkern
