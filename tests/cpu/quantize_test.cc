// tests/cpu/quantize_test.cc: every instruction set against the plain loops, byte for byte.
#include <gtest/gtest.h>

#include "cpu/backend.h"
#include "tests/support/compare_quantized.h"
#include "tests/support/kernel_tables.h"
#include "tests/support/quantize_options.h"
#include "tests/support/reference_quantize.h"

namespace mxkern {
namespace {

using namespace test;

struct Case {
  Scheme scheme;
  ScaleLayout layout = ScaleLayout::row_major;
  QuantizeOptions rows;
  QuantizeOptions columns;
};

// Rows, columns and both, on every instruction set.
void expect_reference_bytes(Tensor& x, const Case& test) {
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

TEST(CpuQuantize, EveryOptionGivesTheBytesOfTheReference) {
  const Shape shapes[] = {{1, 40, 70}, {2, 17, 65}, {1, 130, 33}, {1, 3, 260}, {1, 129, 16}};
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for_each_option(scheme, [&](const QuantizeOptions& options) {
        Tensor x(dtype, shapes[turn++ % std::size(shapes)]);
        fill_mixed(x, static_cast<std::uint64_t>(turn));
        for (const ScaleLayout layout : all_scale_layouts) {
          expect_reference_bytes(x, {scheme, layout, options, options});
        }
      });
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CpuQuantize, EveryShapeGivesTheBytesOfTheReference) {
  for (const Scheme scheme : all_schemes) {
    const int block = facts_of(scheme).block;
    int turn = 0;
    for (const int rows : {0, 1, 2, block + 1, 127, 129}) {
      for (const int columns : {0, 1, block - 1, block, block + 1, 127, 128, 129, 300}) {
        const DType dtype = all_dtypes[turn % 3];
        const ScaleLayout layout = all_scale_layouts[turn++ % 2];
        Tensor x(dtype, {1, rows, columns});
        fill_mixed(x, static_cast<std::uint64_t>(turn));
        expect_reference_bytes(x, {scheme, layout, {}, {}});
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace mxkern
