// quantize.cc: checks the arguments of the quantizing operations and picks the device.
#include "mxkern/quantize.h"

#include <array>
#include <cstddef>

#include "check.h"
#include "check_quantize.h"
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

void check_direction(const char* function, const Buffer& x, const Direction& direction) {
  check_block_scaled(function, direction.argument, direction.out);
  check_same_shape(function, direction.argument, direction.out.shape, direction.shape);
  check_same_device(function, direction.argument, direction.out.device, x.device);
  check_quantize_options(function, direction.out, direction.options, direction.shape);
}

// What a direction writes, null where it is not asked for.
struct Written {
  const BlockScaled* out;
  const QuantizeOptions& options;

  // Where the amax is left that is found.
  const float* found_amax() const {
    return out != nullptr && finds_amax(*out, options) ? options.found_amax : nullptr;
  }
};

// Outputs lie in memory of their own.
void check_memory(const char* function, const Buffer& x, const Written& rows,
                  const Written& columns) {
  const bool both = rows.out != nullptr && columns.out != nullptr;
  std::array<Occupied, 7> outs;
  std::size_t parts = 0;
  const auto add_parts = [&](const char* name, const BlockScaled* out) {
    if (out == nullptr) return;
    for (const Occupied& part : OccupiedParts(name, *out).part) outs[parts++] = part;
  };
  add_parts(both ? "rows" : "out", rows.out);
  add_parts(both ? "columns" : "out", columns.out);
  check_apart(function, {outs.data(), parts}, "x", x);
  for (const Written* side : {&rows, &columns}) {
    if (side->found_amax() == nullptr) continue;
    // In turns, as one place may do for both.
    outs[parts] = {"found_amax", "", side->found_amax(), sizeof(float)};
    check_apart(function, {outs.data(), parts + 1}, "x", x);
  }
  const bool one_amax = rows.options.hadamard.size == 0 && columns.options.hadamard.size == 0;
  check(
      rows.found_amax() == nullptr || rows.found_amax() != columns.found_amax() || one_amax,
      function,
      ": found_amax is in one place for rows and columns, whose amaxes differ; expected a float32 "
      "for each");
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
  check_memory(function, x, {rows, row_options}, {columns, column_options});
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
  check_aligned(function, "amax", "", amax);
  if (!has_gaps(x)) check_apart(function, {"amax", "", amax, sizeof(float)}, {"x", x});
  check_device(function, x.device);
#if defined(MXKERN_HAS_CUDA)
  if (x.device.type == DeviceType::cuda) return cuda::tensor_amax(x, amax, stream);
#endif
  static_cast<void>(stream);
  cpu::tensor_amax(x, amax);
}

}  // namespace mxkern
