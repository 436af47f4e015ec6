// tests/cpu/gemm/panels_test.cc: weights prepared as panels: what lies in them, and products that
// read them. Units for few rows are in gemm_test.cc and others, with all units.
#include "cpu/gemm/panels/panels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cpu/gemm/task.h"
#include "mxkern/core/error.h"
#include "mxkern/grouped_gemm.h"
#include "tests/support/error_message.h"
#include "tests/support/gemm_reference.h"

namespace mxkern {
namespace {

using test::AlignedMemory;
using test::normal_values;
using test::PlainTensor;
using test::QuantizedOperand;

class PanelsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::reads_panels()) GTEST_SKIP() << "no unit of this machine reads panels";
  }
};

QuantizedOperand make_operand(Scheme scheme, Shape shape, ScaleLayout layout, std::uint64_t seed) {
  QuantizedOperand operand(scheme, shape, layout);
  operand.quantize(normal_values(seed));
  return operand;
}

// Panels of a batch.
struct Panels {
  AlignedMemory memory;
  PreparedOperand operand;

  explicit Panels(const BlockScaled& q)
      : memory(prepared_bytes(PreparedForm::panels, q.scheme, q.shape)),
        operand{PreparedForm::panels, q, memory.workspace().data, memory.workspace().bytes} {
    prepare_operand(q, operand);
  }
};

TEST_F(PanelsTest, RowsComeBackAsTheyWere) {
  for (const Scheme scheme : all_schemes) {
    for (const ScaleLayout layout : all_scale_layouts) {
      for (const Shape shape : {Shape{1, 1, 1}, Shape{1, 33, 129}, Shape{1, 16, 160}}) {
        QuantizedOperand b = make_operand(scheme, shape, layout, 3);
        const BlockScaled& q = b.quantized();
        const Panels panels(q);
        cpu::GemmMatrix matrix = make_task(q, q, panels.operand.data, Buffer{}, {}).right;
        std::vector<std::uint8_t> row(
            static_cast<std::size_t>(cpu::panel_row_bytes(shape.columns)));
        for (std::int64_t i = 0; i < shape.rows; ++i) {
          const cpu::GemmMatrix one = cpu::read_panel_row(matrix, i, row.data());
          const int bits = facts_of(scheme).bits;
          for (std::int64_t k = 0; k < shape.columns; ++k) {
            ASSERT_EQ(test::get_code(row, k * bits, bits),
                      test::get_code(b.codes, b.code_position(0, i, k), bits))
                << name_of(scheme) << ", row " << i << ", element " << k;
          }
          for (std::int64_t block = 0; block < one.scale_index.blocks; ++block) {
            ASSERT_EQ(one.scales[block], q.scales[q.scale_index().offset(i, block)])
                << name_of(scheme) << ", row " << i << ", block " << block;
          }
        }
      }
    }
  }
}

// Units for many rows find the same elements in panels, and so give the same bytes.
TEST_F(PanelsTest, ManyRowsAreMultipliedAsTheyAreFromCodes) {
  for (const GemmUnit unit : test::available_units()) {
    if (is_for_few_rows(unit)) continue;
    for (const Scheme scheme : all_schemes) {
      for (const Shape shape : {Shape{1, 5, 31}, Shape{2, 70, 161}, Shape{1, 33, 1200}}) {
        QuantizedOperand b = make_operand(scheme, shape, ScaleLayout::swizzled, 4);
        for (const DType dtype : all_dtypes) {
          PlainTensor a(dtype, {shape.batch, 19, shape.columns}, 2);
          a.fill(normal_values(5));
          PlainTensor want(DType::float32, {shape.batch, 19, shape.rows});
          PlainTensor got(DType::float32, {shape.batch, 19, shape.rows});
          test::run_unit(unit, a.operand(), b.quantized(), want.buffer());
          test::run_with_panels(unit, a.operand(), b.quantized(), got.buffer());
          ASSERT_EQ(want.bytes, got.bytes) << test::describe_case(unit, a.operand(), b.quantized());
        }
      }
    }
  }
}

TEST_F(PanelsTest, LongRowsAreReadInParts) {
  for (const Scheme scheme : all_schemes) {
    QuantizedOperand b = make_operand(scheme, {1, 17, 2 * 16384 + 170}, ScaleLayout::row_major, 6);
    for (const DType dtype : all_dtypes) {
      PlainTensor a(dtype, {1, 3, b.view.shape.columns});
      a.fill(normal_values(7));
      PlainTensor out(DType::float32, {1, 3, 17});
      const test::Reference want = test::multiply(a, b, out);
      for (const GemmUnit unit : test::available_units()) {
        if (!reads_panels(unit)) continue;
        test::run_unit(unit, a.operand(), b.quantized(), out.buffer());
        ASSERT_TRUE(test::agrees(out, want, test::describe_case(unit, a.operand(), b.quantized())));
      }
    }
  }
}

TEST_F(PanelsTest, EveryNumberOfRowsAndThreads) {
  QuantizedOperand b = make_operand(Scheme::mxfp4, {1, 700, 288}, ScaleLayout::row_major, 8);
  for (const GemmUnit unit : test::available_units()) {
    if (!reads_panels(unit)) continue;
    for (const std::int64_t rows : {1, 2, 3, 5, 7, 9, 13, 16, 17, 48, 50, 100}) {
      PlainTensor a(DType::bfloat16, {1, rows, 288});
      a.fill(normal_values(9));
      PlainTensor one(DType::float32, {1, rows, 700}), many(DType::float32, {1, rows, 700});
      const test::Reference want = test::multiply(a, b, one);
      test::run_unit(unit, a.operand(), b.quantized(), one.buffer(), {}, 1);
      ASSERT_TRUE(test::agrees(one, want, test::describe_case(unit, a.operand(), b.quantized())));
      for (const int threads : {2, 3, 16}) {
        test::run_unit(unit, a.operand(), b.quantized(), many.buffer(), {}, threads);
        ASSERT_EQ(one.bytes, many.bytes) << name_of(unit) << ", " << rows << " rows, " << threads;
      }
    }
  }
}

// NaN of a row of weights reaches its column of the output, and nothing else.
TEST_F(PanelsTest, NanStaysInItsColumn) {
  for (const Scheme scheme : all_schemes) {
    for (const std::int64_t m : {2, 60}) {
      QuantizedOperand b(scheme, {1, 40, 100}, ScaleLayout::row_major);
      b.quantize([](std::int64_t, std::int64_t row, std::int64_t column) {
        return static_cast<double>(row + column % 7);
      });
      b.scale(0, 21, 2) = facts_of(scheme).nan_scale;
      PlainTensor a(DType::float32, {1, m, 100}), out(DType::float32, {1, m, 40});
      a.fill([](std::int64_t, std::int64_t, std::int64_t) { return 0.0; });
      for (const GemmUnit unit : test::available_units()) {
        if (is_for_few_rows(unit) && !reads_panels(unit)) continue;
        test::run_with_panels(unit, a.operand(), b.quantized(), out.buffer());
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t j = 0; j < 40; ++j) {
            ASSERT_EQ(std::isnan(out.value(0, i, j)), j == 21) << name_of(unit) << ", " << j;
          }
        }
      }
    }
  }
}

TEST_F(PanelsTest, GroupsOfRowsReadThem) {
  for (const Scheme scheme : all_schemes) {
    QuantizedOperand b = make_operand(scheme, {4, 45, 161}, ScaleLayout::swizzled, 10);
    Panels panels(b.quantized());
    panels.operand.source.codes = panels.operand.source.scales = nullptr;
    const std::int32_t ends[] = {2, 2, 60, 61};
    PlainTensor a(DType::bfloat16, {1, 61, 161}), out(DType::float32, {1, 61, 45});
    a.fill(normal_values(11));
    const RowGroups groups{ends, 4};
    const AlignedMemory memory(
        grouped_gemm_workspace_bytes(a.operand(), panels.operand, groups, out.buffer()));
    grouped_gemm(a.operand(), panels.operand, groups, out.buffer(), {}, memory.workspace());
    PlainTensor all(DType::float32, {4, 61, 45});
    PlainTensor four(DType::bfloat16, {4, 61, 161});
    four.fill([&](std::int64_t, std::int64_t row, std::int64_t k) { return a.value(0, row, k); });
    const test::Reference want = test::multiply(four, b, all);
    for (std::int64_t row = 0, group = 0; row < 61; ++row) {
      while (row >= ends[group]) ++group;
      for (std::int64_t j = 0; j < 45; ++j) {
        ASSERT_TRUE(
            test::is_as_expected(out.value(0, row, j), want.at(group, row, j), DType::float32))
            << name_of(scheme) << ", " << row << ", " << j;
      }
    }
  }
}

TEST_F(PanelsTest, ColumnsOfGroupsNeedTheSource) {
  QuantizedOperand a = make_operand(Scheme::mxfp8_e4m3, {1, 5, 64}, ScaleLayout::row_major, 12);
  QuantizedOperand b = make_operand(Scheme::mxfp4, {1, 7, 64}, ScaleLayout::row_major, 13);
  Panels panels(b.quantized());
  const std::int32_t ends[] = {32, 64};
  PlainTensor out(DType::float32, {2, 5, 7});
  const ColumnGroups groups{ends, 2};
  EXPECT_GT(grouped_gemm_workspace_bytes(a.quantized(), panels.operand, groups, out.buffer()), 0u);
  panels.operand.source.codes = panels.operand.source.scales = nullptr;
  test::expect_failure<Unsupported>("grouped_gemm: b was prepared without its codes", [&] {
    grouped_gemm_workspace_bytes(a.quantized(), panels.operand, groups, out.buffer());
  });
  test::expect_failure<Unsupported>("gemm: a was prepared without its codes", [&] {
    const PlainTensor square(DType::float32, {1, 7, 7});
    gemm_workspace_bytes(panels.operand, b.quantized(), PlainTensor(square).buffer());
  });
}

}  // namespace
}  // namespace mxkern
