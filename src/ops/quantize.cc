// ops/quantize.cc: checks the arguments of the quantizing operations and picks the device.
#include "mxkern/quantize.h"

#include <array>
#include <cstddef>

#include "check/arguments.h"
#include "check/quantize.h"
#include "cpu/backend.h"
#include "cuda/backend.h"

namespace mxkern {
namespace {

// A direction: what it writes, null where it is not asked for, and how.
struct Written {
  const char* argument;
  const BlockScaled* out;
  const QuantizeOptions& options;

  // Where the amax is left that is found.
  const float* found_amax() const {
    return out != nullptr && finds_amax(out->scheme, options) ? options.found_amax : nullptr;
  }
};

// `shape` is that of x as the direction sees it.
void check_direction(const char* function, const Buffer& x, const Written& side,
                     const Shape& shape) {
  check_block_scaled(function, side.argument, *side.out);
  check_writable(function, side.argument, side.out->is_read_only);
  check_same_shape(function, side.argument, side.out->shape, shape);
  check_same_device(function, side.argument, side.out->device, x.device);
  check_quantize_options(function, side.out->scheme, side.out->device, side.options, shape);
}

// Nothing is written where a scalar that is given lies, as other thread blocks may read it later.
void check_given(const char* function, const Occupied& out, const Written& side) {
  if (side.out == nullptr) return;
  visit_scalars(side.options, [&](const Occupied& scalar) { check_apart(function, out, scalar); });
}

// Outputs lie in memory of their own.
void check_memory(const char* function, const Buffer& x, const Written& rows,
                  const Written& columns) {
  std::array<Occupied, 7> outs;
  std::size_t parts = 0;
  for (const Written* side : {&rows, &columns}) {
    if (side->out == nullptr) continue;
    const OccupiedParts out(side->argument, *side->out);
    for (const Occupied& part : out.part) outs[parts++] = part;
  }
  const auto check_outs = [&](std::size_t count) {
    check_apart(function, {outs.data(), count}, {"x", x});
    for (std::size_t i = 0; i < count; ++i) {
      check_given(function, outs[i], rows);
      check_given(function, outs[i], columns);
    }
  };
  check_outs(parts);
  for (const Written* side : {&rows, &columns}) {
    if (side->found_amax() == nullptr) continue;
    // In turns, as one place may do for both.
    outs[parts] = {"found_amax", "", side->found_amax(), sizeof(float)};
    check_outs(parts + 1);
  }
  const bool one_amax = rows.options.hadamard.size == 0 && columns.options.hadamard.size == 0;
  check(
      rows.found_amax() == nullptr || rows.found_amax() != columns.found_amax() || one_amax,
      function,
      ": found_amax is in one place for rows and columns, whose amaxes differ; expected a float32 "
      "for each");
}

void run(const char* function, const Buffer& given, const BlockScaled* rows,
         const QuantizeOptions& row_options, const BlockScaled* columns,
         const QuantizeOptions& column_options, Stream stream) {
  check_buffer(function, "x", given);
  const Buffer x = with_strides(given);
  const Written row_side{columns == nullptr ? "out" : "rows", rows, row_options};
  const Written column_side{rows == nullptr ? "out" : "columns", columns, column_options};
  if (rows != nullptr) check_direction(function, x, row_side, x.shape);
  if (columns != nullptr) check_direction(function, x, column_side, x.shape.transposed());
  if (rows != nullptr && columns != nullptr) {
    check(rows->scheme == columns->scheme, function, ": rows has scheme ", name_of(rows->scheme),
          ", columns has ", name_of(columns->scheme), "; expected the same scheme");
    check(row_options.block_shape == column_options.block_shape, function,
          ": the block shapes of rows and columns differ; expected the same for both");
  }
  check_device(function, x.device);
  check_memory(function, x, row_side, column_side);
  if constexpr (has_cuda) {
    if (x.device.type == DeviceType::cuda) {
      return cuda::quantize(function, x, rows, row_options, columns, column_options, stream);
    }
  }
  cpu::quantize(x, rows, with_offset(row_options), columns, with_offset(column_options));
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

void tensor_amax(const Buffer& given, float* amax, const AmaxOptions& options, Stream stream) {
  constexpr const char* function = "tensor_amax";
  check_buffer(function, "x", given);
  const Buffer x = with_strides(given);
  check(amax != nullptr, function, ": amax is null; expected a float32 to write to");
  check_aligned(function, "amax", "", amax);
  check_apart(function, {"amax", "", amax, sizeof(float)}, {"x", x});
  check_transform(function, options.hadamard, options.columns ? x.shape.rows : x.shape.columns);
  check_device(function, x.device);
  if constexpr (has_cuda) {
    if (x.device.type == DeviceType::cuda) return cuda::tensor_amax(x, amax, options, stream);
  }
  cpu::tensor_amax(x, amax, options);
}

}  // namespace mxkern
