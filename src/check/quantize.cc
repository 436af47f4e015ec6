// check/quantize.cc: the checks of how something is quantized.
#include "check/quantize.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "check/arguments.h"
#include "mxkern/core/error.h"

namespace mxkern {
namespace {

// A scalar that the caller gives, where the CPU can read it.
void check_scalar(const char* function, const char* name, const float* value, Device device) {
  check_aligned(function, name, "", value);
  if (value == nullptr || device.type != DeviceType::cpu) return;
  check(std::isfinite(*value) && *value >= 0.0f, function, ": ", name, " is ", *value,
        "; expected a finite number that is not negative");
}

}  // namespace

void check_transform(const char* function, const Hadamard& hadamard, std::int64_t extent) {
  const int size = hadamard.size;
  if (size == 0) return;
  check(std::count(std::begin(hadamard_sizes), std::end(hadamard_sizes), size) == 1, function,
        ": a Hadamard transform of size ", size, "; expected 16, 32, 64 or 128, or 0 for none");
  check(extent % size == 0, function, ": a Hadamard transform of size ", size, " along an axis of ",
        extent, "; expected a multiple of ", size);
}

void check_quantize_options(const char* function, Scheme scheme, Device device,
                            const QuantizeOptions& options, const Shape& shape) {
  const SchemeFacts facts = facts_of(scheme);
  check(is_listed(options.scale_rule, all_scale_rules), function, ": scale rule number ",
        static_cast<int>(options.scale_rule), "; expected rceil, floor, ceil or even");
  check(is_listed(options.rounding, all_roundings), function, ": rounding number ",
        static_cast<int>(options.rounding), "; expected nearest or stochastic");
  check(is_listed(options.block_shape, all_block_shapes), function, ": block shape number ",
        static_cast<int>(options.block_shape), "; expected row or square");
  check(is_listed(options.block_error, all_block_errors), function, ": block error number ",
        static_cast<int>(options.block_error), "; expected mse or mae");
  check(options.four_over_six || options.block_error == QuantizeOptions().block_error, function,
        ": block_error is mae without four_over_six; set four_over_six, or leave block_error");
  if (!facts.has_tensor_scale) {
    check(!options.four_over_six, function, ": four_over_six is for nvfp4; ", facts.name,
          " has one scale for each rule");
    check(options.amax == nullptr && options.tensor_scale == nullptr, function,
          ": amax and tensor_scale are for nvfp4; ", facts.name, " has no tensor scale");
  } else {
    check(options.scale_rule == QuantizeOptions().scale_rule, function, ": scale_rule is number ",
          static_cast<int>(options.scale_rule), ", but ", facts.name,
          " has one rule of its own; leave scale_rule as it is");
  }
  check(
      options.amax == nullptr || options.tensor_scale == nullptr, function,
      ": amax and tensor_scale are both given; expected at most one, each follows from the other");
  check_scalar(function, "amax", options.amax, device);
  check_scalar(function, "tensor_scale", options.tensor_scale, device);
  check_aligned(function, "found_amax", "", options.found_amax);
  check_aligned(function, "offset_at", "", options.offset_at, sizeof(std::uint64_t));
  check_transform(function, options.hadamard, shape.columns);
  check(
      options.hadamard.size == 0 || options.block_shape == BlockShape::row, function,
      ": square blocks with a Hadamard transform; expected one of them, because a transform along "
      "one axis leaves no square that both directions share; use block_shape row");
}

}  // namespace mxkern
