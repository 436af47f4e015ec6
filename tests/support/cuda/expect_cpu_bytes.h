// tests/support/cuda/expect_cpu_bytes.h: what is quantized on the device, byte for byte, is what
// the CPU makes of it.
#pragma once

#include "mxkern/mxkern.h"
#include "tests/support/compare_quantized.h"
#include "tests/support/cuda/memory.h"
#include "tests/support/quantize_options.h"

namespace mxkern::test {

// What is quantized, and how.
struct QuantizeCase {
  Scheme scheme;
  ScaleLayout layout = ScaleLayout::row_major;
  QuantizeOptions rows = {};
  QuantizeOptions columns = {};
  bool misaligned = false;
};

// What a caller gives instead of an amax that is found; on the host and on the device.
struct Given {
  float amax = 0.0f;  // 0: none
  float tensor_scale = 0.0f;
};

inline QuantizeOptions with_given(QuantizeOptions options, const float* amax,
                                  const float* tensor_scale) {
  options.amax = amax;
  options.tensor_scale = tensor_scale;
  return options;
}

// Rows, columns and both; a direction whose extent the transform does not divide is left out.
inline void expect_cpu_bytes(Tensor& x, const QuantizeCase& test, const Given& given = {}) {
  const Shape shape = x.shape();
  const Shape turned = shape.transposed();
  DeviceTensor device_x(x, test.misaligned);
  DeviceFloat device_amax(given.amax), device_scale(given.tensor_scale);
  const auto fits = [](const Shape& along, const QuantizeOptions& options) {
    return options.hadamard.size == 0 || along.columns % options.hadamard.size == 0;
  };
  const auto on_cpu = [&](const QuantizeOptions& options) {
    return with_given(options, given.amax != 0 ? &given.amax : nullptr,
                      given.tensor_scale != 0 ? &given.tensor_scale : nullptr);
  };
  // One case in three has its offset in the call, the others in memory.
  static int cases = 0;
  const bool offsets_on_device = ++cases % 3 != 0;
  DeviceBytes offsets(2 * sizeof(std::uint64_t));
  const auto on_device = [&](const QuantizeOptions& options, DeviceQuantized& out) {
    QuantizeOptions with = with_given(options, given.amax != 0 ? device_amax.address() : nullptr,
                                      given.tensor_scale != 0 ? device_scale.address() : nullptr);
    with.found_amax = out.found_amax();
    if (options.rounding == Rounding::stochastic && offsets_on_device) {
      auto* place = reinterpret_cast<std::uint64_t*>(offsets.data()) + (&options == &test.rows);
      check_cuda(cudaMemcpy(place, &options.offset, sizeof *place, cudaMemcpyHostToDevice));
      with.offset_at = place;
      with.offset = ~options.offset;
    }
    return with;
  };
  const auto trace = [&](const char* direction, const QuantizeOptions& options) {
    return concatenate(direction, ", ", describe(x, options), test.misaligned ? ", misaligned" : "",
                       ", amax ", given.amax, ", tensor scale ", given.tensor_scale);
  };
  Quantized rows(test.scheme, shape, test.layout), columns(test.scheme, turned, test.layout);
  const Quantized fresh_rows = rows, fresh_columns = columns;
  const bool with_rows = fits(shape, test.rows), with_columns = fits(turned, test.columns);

  if (with_rows) {
    DeviceQuantized out(rows, test.misaligned);
    quantize(x.buffer(), rows.out(), on_cpu(test.rows));
    quantize(device_x.buffer(), out.view(), on_device(test.rows, out));
    ASSERT_TRUE(same_bytes(out.on_host(), rows)) << trace("rows", test.rows);
  }
  if (with_columns) {
    DeviceQuantized out(columns, test.misaligned);
    quantize_columns(x.buffer(), columns.out(), on_cpu(test.columns));
    quantize_columns(device_x.buffer(), out.view(), on_device(test.columns, out));
    ASSERT_TRUE(same_bytes(out.on_host(), columns)) << trace("columns", test.columns);
  }
  if (with_rows && with_columns) {
    Quantized unwritten_rows = fresh_rows, unwritten_columns = fresh_columns;
    DeviceQuantized out(unwritten_rows, test.misaligned);
    DeviceQuantized turned_out(unwritten_columns, test.misaligned);
    quantize_both(device_x.buffer(), out.view(), turned_out.view(), on_device(test.rows, out),
                  on_device(test.columns, turned_out));
    ASSERT_TRUE(same_bytes(out.on_host(), rows)) << trace("rows of both", test.rows);
    ASSERT_TRUE(same_bytes(turned_out.on_host(), columns))
        << trace("columns of both", test.columns);
  }
}

}  // namespace mxkern::test
