// tests/support/expect_reference_bytes.h: the CPU's quantization against plain loops.
#pragma once

#include <gtest/gtest.h>

#include "cpu/backend.h"
#include "tests/support/compare_quantized.h"
#include "tests/support/kernel_tables.h"
#include "tests/support/quantize_options.h"
#include "tests/support/reference_quantize.h"

namespace mxkern::test {

struct QuantizeCase {
  Scheme scheme;
  ScaleLayout layout = ScaleLayout::row_major;
  QuantizeOptions rows;
  QuantizeOptions columns;
};

// Rows, columns and both, on every instruction set.
inline void expect_reference_bytes(Tensor& x, const QuantizeCase& test) {
  const Shape turned = x.shape().transposed();
  const Quantized rows = reference_quantize(x, false, test.scheme, test.layout, test.rows);
  const Quantized columns = reference_quantize(x, true, test.scheme, test.layout, test.columns);
  for (const cpu::InstructionSet set : available_instruction_sets()) {
    const cpu::KernelTable& kernels = cpu::kernels_for(set);
    const auto trace = [&](const char* direction, const QuantizeOptions& options) {
      return concatenate(cpu::name_of(set), ", ", direction, ", ", describe(x, options));
    };
    Quantized row_out(test.scheme, x.shape(), test.layout);
    cpu::quantize(x.buffer(), &row_out.out(), test.rows, nullptr, test.rows, kernels);
    ASSERT_TRUE(same_bytes(row_out, rows)) << trace("rows", test.rows);

    Quantized column_out(test.scheme, turned, test.layout);
    cpu::quantize(x.buffer(), nullptr, test.columns, &column_out.out(), test.columns, kernels);
    ASSERT_TRUE(same_bytes(column_out, columns)) << trace("columns", test.columns);

    Quantized both_rows(test.scheme, x.shape(), test.layout);
    Quantized both_columns(test.scheme, turned, test.layout);
    cpu::quantize(x.buffer(), &both_rows.out(), test.rows, &both_columns.out(), test.columns,
                  kernels);
    ASSERT_TRUE(same_bytes(both_rows, rows)) << trace("rows of both", test.rows);
    ASSERT_TRUE(same_bytes(both_columns, columns)) << trace("columns of both", test.columns);
  }
}

}  // namespace mxkern::test
