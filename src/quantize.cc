// quantize.cc: checks the arguments of the quantizing operations and picks the device.
#include "mxkern/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "check.h"
#include "cpu/backend.h"
#if defined(MXKERN_HAS_CUDA)
#include "cuda/backend.h"
#endif
#include "overlap.h"

namespace mxkern {
namespace {

// One direction: what it writes, and how.
struct Direction {
  const char* argument;
  const BlockScaled& out;
  const QuantizeOptions& options;
  Shape shape;  // of x as this direction sees it
};

// A scalar that the caller gives, where the CPU can read it.
void check_scalar(const char* function, const char* name, const float* value, Device device) {
  if (value == nullptr || device.type != DeviceType::cpu) return;
  check(std::isfinite(*value) && *value >= 0.0f, function, ": ", name, " is ", *value,
        "; expected a finite number that is not negative");
}

void check_options(const char* function, const Direction& direction) {
  const QuantizeOptions& options = direction.options;
  const SchemeFacts facts = facts_of(direction.out.scheme);
  check(options.scale_rule <= ScaleRule::even, function, ": scale rule number ",
        static_cast<int>(options.scale_rule), "; expected rceil, floor, ceil or even");
  check(options.rounding <= Rounding::stochastic, function, ": rounding number ",
        static_cast<int>(options.rounding), "; expected nearest or stochastic");
  check(options.block_shape <= BlockShape::square, function, ": block shape number ",
        static_cast<int>(options.block_shape), "; expected row or square");
  if (!facts.has_tensor_scale) {
    check(!options.four_over_six, function, ": four_over_six is for nvfp4; ", facts.name,
          " has one scale for each rule");
    check(options.amax == nullptr && options.tensor_scale == nullptr, function,
          ": amax and tensor_scale are for nvfp4; ", facts.name, " has no tensor scale");
  }
  check(
      options.amax == nullptr || options.tensor_scale == nullptr, function,
      ": amax and tensor_scale are both given; expected at most one, each follows from the other");
  check_scalar(function, "amax", options.amax, direction.out.device);
  check_scalar(function, "tensor_scale", options.tensor_scale, direction.out.device);
  const int size = options.hadamard.size;
  if (size == 0) return;
  check(std::count(std::begin(hadamard_sizes), std::end(hadamard_sizes), size) == 1, function,
        ": a Hadamard transform of size ", size, "; expected 16, 32, 64 or 128, or 0 for none");
  check(direction.shape.columns % size == 0, function, ": a Hadamard transform of size ", size,
        " along an axis of ", direction.shape.columns, "; expected a multiple of ", size);
  check(
      options.block_shape == BlockShape::row, function,
      ": square blocks with a Hadamard transform; expected one of them, because a transform along "
      "one axis leaves no square that both directions share; use block_shape row");
}

void check_direction(const char* function, const Buffer& x, const Direction& direction) {
  check_block_scaled(function, direction.argument, direction.out);
  check_same_shape(function, direction.argument, direction.out.shape, direction.shape);
  check_same_device(function, direction.argument, direction.out.device, x.device);
  check_options(function, direction);
}

void run(const char* function, const Buffer& x, const BlockScaled* rows,
         const QuantizeOptions& row_options, const BlockScaled* columns,
         const QuantizeOptions& column_options, Stream stream) {
  check_buffer(function, "x", x);
  if (rows != nullptr) {
    const char* name = columns == nullptr ? "out" : "rows";
    check_direction(function, x, {name, *rows, row_options, x.shape});
  }
  if (columns != nullptr) {
    const char* name = rows == nullptr ? "out" : "columns";
    check_direction(function, x, {name, *columns, column_options, x.shape.transposed()});
  }
  if (rows != nullptr && columns != nullptr) {
    check(rows->scheme == columns->scheme, function, ": rows has scheme ", name_of(rows->scheme),
          ", columns has ", name_of(columns->scheme), "; expected the same scheme");
    check(row_options.block_shape == column_options.block_shape, function,
          ": the block shapes of rows and columns differ; expected the same for both");
  }
  check_device(function, x.device);
  std::array<Occupied, 6> outs;
  std::size_t parts = 0;
  for (const auto& [name, out] : {std::pair{columns == nullptr ? "out" : "rows", rows},
                                  std::pair{rows == nullptr ? "out" : "columns", columns}}) {
    if (out == nullptr) continue;
    for (const Occupied& part : OccupiedParts(name, *out).part) outs[parts++] = part;
  }
  check_apart(function, {outs.data(), parts}, "x", x);
#if defined(MXKERN_HAS_CUDA)
  if (x.device.type == DeviceType::cuda) {
    return cuda::quantize(function, x, rows, row_options, columns, column_options, stream);
  }
#endif
  static_cast<void>(stream);  // the CPU has finished when the call returns
  cpu::quantize(x, rows, row_options, columns, column_options);
}

}  // namespace

void quantize(const Buffer& x, const BlockScaled& out, const QuantizeOptions& options,
              Stream stream) {
  run("quantize", x, &out, options, nullptr, options, stream);
}

void quantize_columns(const Buffer& x, const BlockScaled& out, const QuantizeOptions& options,
                      Stream stream) {
  run("quantize_columns", x, nullptr, options, &out, options, stream);
}

void quantize_both(const Buffer& x, const BlockScaled& rows, const BlockScaled& columns,
                   const QuantizeOptions& row_options, const QuantizeOptions& column_options,
                   Stream stream) {
  run("quantize_both", x, &rows, row_options, &columns, column_options, stream);
}

void tensor_amax(const Buffer& x, float* amax, Stream stream) {
  constexpr const char* function = "tensor_amax";
  check_buffer(function, "x", x);
  check(amax != nullptr, function, ": amax is null; expected a float32 to write to");
  check_device(function, x.device);
#if defined(MXKERN_HAS_CUDA)
  if (x.device.type == DeviceType::cuda) return cuda::tensor_amax(x, amax, stream);
#endif
  static_cast<void>(stream);
  cpu::tensor_amax(x, amax);
}

}  // namespace mxkern
