// tests/ops/gemm_test.cc: the matrix product against double precision, for every unit of this
// machine.
#include "mxkern/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "mxkern/core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/gemm_reference.h"

namespace mxkern {
namespace {

using test::agrees;
using test::describe_case;
using test::normal_values;
using test::PlainTensor;
using test::QuantizedOperand;

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

ScaleLayout layout_of(int i) { return all_scale_layouts[i % 2]; }

template <class Left>
void expect_product(GemmUnit unit, Left& a, QuantizedOperand& b, DType dtype = DType::float32) {
  PlainTensor out(dtype, {a.view.shape.batch, a.view.shape.rows, b.view.shape.rows}, 3);
  test::run_unit(unit, a.operand(), b.quantized(), out.buffer());
  ASSERT_TRUE(
      agrees(out, test::multiply(a, b, out), describe_case(unit, a.operand(), b.quantized())));
}

QuantizedOperand make_operand(Scheme scheme, Shape shape, ScaleLayout layout, std::uint64_t seed) {
  QuantizedOperand operand(scheme, shape, layout);
  operand.quantize(normal_values(seed));
  return operand;
}

// The other tests go through what the library says that this machine runs.
TEST(GemmTest, TheBaselineUnitsRunEverywhere) {
  EXPECT_TRUE(cpu::gemm_capabilities().runs(GemmUnit::baseline));
  EXPECT_TRUE(cpu::gemm_capabilities().runs(GemmUnit::baseline_few_rows));
}

TEST(GemmTest, EveryPairOfSchemes) {
  int turn = 0;
  for (const Scheme left : all_schemes) {
    for (const Scheme right : all_schemes) {
      ++turn;
      QuantizedOperand a = make_operand(left, {1, 37, 161}, layout_of(turn), 1);
      QuantizedOperand b = make_operand(right, {1, 45, 161}, layout_of(turn / 2), 2);
      for (const GemmUnit unit : test::available_units()) {
        ASSERT_NO_FATAL_FAILURE(expect_product(unit, a, b));
      }
    }
  }
}

TEST(GemmTest, PlainLeftOperandWithEveryScheme) {
  for (const DType dtype : all_dtypes) {
    PlainTensor a(dtype, {1, 37, 161}, 5);
    a.fill(normal_values(3));
    for (const Scheme right : all_schemes) {
      QuantizedOperand b = make_operand(right, {1, 45, 161}, ScaleLayout::row_major, 4);
      for (const GemmUnit unit : test::available_units()) {
        ASSERT_NO_FATAL_FAILURE(expect_product(unit, a, b));
      }
    }
  }
}

// One element a row that is not zero, against a column of ones: the product is that element, to the
// bit. So every code and every scale is unpacked as it should, at every place of a chunk.
void expect_elements(GemmUnit unit, QuantizedOperand& operand) {
  const std::int64_t k = operand.view.shape.columns;
  const std::int64_t rows = operand.view.shape.rows;
  QuantizedOperand ones(Scheme::mxint8, {1, 3, k}, ScaleLayout::row_major);
  ones.quantize([](std::int64_t, std::int64_t, std::int64_t) { return 1.0; });
  PlainTensor as_left(DType::float32, {1, rows, 3});
  PlainTensor as_right(DType::float32, {1, 3, rows});
  test::run_unit(unit, operand.operand(), ones.quantized(), as_left.buffer());
  test::run_unit(unit, ones.operand(), operand.quantized(), as_right.buffer());
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto want = static_cast<float>(operand.value(0, row, row % k));
    for (const double got : {as_left.value(0, row, 1), as_right.value(0, 1, row)}) {
      const bool equal = std::isnan(want) ? std::isnan(got) : got == static_cast<double>(want);
      ASSERT_TRUE(equal) << name_of(unit) << ", " << name_of(operand.view.scheme) << ", row " << row
                         << ", k " << row % k << ": got " << test::show(static_cast<float>(got))
                         << ", want " << test::show(want);
    }
  }
}

TEST(GemmTest, EveryCodeAtEveryPlace) {
  for (const Scheme scheme : all_schemes) {
    const SchemeFacts facts = facts_of(scheme);
    for (const std::int64_t k : {31, 64, 80}) {
      QuantizedOperand operand(scheme, {1, (1 << facts.bits) * 3, k}, ScaleLayout::swizzled);
      operand.for_each_row([&](std::int64_t batch, std::int64_t row) {
        for (std::int64_t i = 0; i < k; ++i) {
          operand.set_code(batch, row, i, i == row % k ? static_cast<std::uint32_t>(row) : 0);
          const int exponent = scheme == Scheme::nvfp4 ? 0x38 : 127;
          operand.scale(batch, row, i / facts.block) =
              static_cast<std::uint8_t>(exponent + (i / facts.block + row) % 5 * 3);
        }
      });
      for (const GemmUnit unit : test::available_units()) {
        ASSERT_NO_FATAL_FAILURE(expect_elements(unit, operand));
      }
    }
  }
}

TEST(GemmTest, EveryScaleOfABlock) {
  for (const Scheme scheme : all_schemes) {
    const SchemeFacts facts = facts_of(scheme);
    constexpr std::int64_t k = 96;
    QuantizedOperand operand(scheme, {1, 256, k}, ScaleLayout::row_major);
    operand.for_each_row([&](std::int64_t batch, std::int64_t row) {
      for (std::int64_t i = 0; i < k; ++i) {
        operand.set_code(batch, row, i, i == row % k ? 3 : 0);
        // Where the others are zeros, their scales are the smallest.
        operand.scale(batch, row, i / facts.block) =
            static_cast<std::uint8_t>(i / facts.block == row % k / facts.block ? row : 0);
      }
    });
    for (const GemmUnit unit : test::available_units()) {
      ASSERT_NO_FATAL_FAILURE(expect_elements(unit, operand));
    }
  }
}

// Around blocks, chunks and the panels that K is cut into.
TEST(GemmTest, EveryLengthOfK) {
  for (const std::int64_t k : {1, 15, 16, 17, 31, 32, 33, 47, 96, 160, 255, 257, 511, 513, 1100}) {
    QuantizedOperand fp6 = make_operand(Scheme::mxfp6_e2m3, {1, 5, k}, ScaleLayout::row_major, 5);
    QuantizedOperand fp8 = make_operand(Scheme::mxfp8_e4m3, {1, 7, k}, ScaleLayout::swizzled, 6);
    QuantizedOperand fp4 = make_operand(Scheme::nvfp4, {1, 7, k}, ScaleLayout::swizzled, 7);
    QuantizedOperand mxfp4 = make_operand(Scheme::mxfp4, {1, 5, k}, ScaleLayout::row_major, 8);
    PlainTensor half(DType::float16, {1, 5, k}, 1);
    half.fill(normal_values(9));
    PlainTensor single(DType::float32, {1, 5, k});
    single.fill(normal_values(29));
    for (const GemmUnit unit : test::available_units()) {
      ASSERT_NO_FATAL_FAILURE(expect_product(unit, fp6, fp8));
      ASSERT_NO_FATAL_FAILURE(expect_product(unit, mxfp4, fp4));
      ASSERT_NO_FATAL_FAILURE(expect_product(unit, half, fp4));
      ASSERT_NO_FATAL_FAILURE(expect_product(unit, single, fp8));
    }
  }
}

// Around tiles, and beyond the largest block of the output.
TEST(GemmTest, EveryNumberOfRowsAndColumns) {
  for (const GemmUnit unit : test::available_units()) {
    const GemmUnitFacts facts = facts_of(unit);
    for (const std::int64_t m : {1, 2, 3, facts.tile_rows - 1, facts.tile_rows, facts.tile_rows + 1,
                                 3 * facts.tile_rows + 2}) {
      for (const std::int64_t n :
           {1, facts.tile_columns - 1, facts.tile_columns, 2 * facts.tile_columns + 5}) {
        QuantizedOperand a = make_operand(Scheme::mxint8, {1, m, 65}, ScaleLayout::swizzled, 10);
        QuantizedOperand b =
            make_operand(Scheme::mxfp8_e5m2, {1, n, 65}, ScaleLayout::swizzled, 11);
        ASSERT_NO_FATAL_FAILURE(expect_product(unit, a, b));
      }
    }
    const std::int64_t rows = facts.max_block_rows + 1;
    const std::int64_t columns = facts.max_block_columns + 1;
    QuantizedOperand a = make_operand(Scheme::mxfp4, {1, rows, 33}, ScaleLayout::row_major, 12);
    QuantizedOperand b = make_operand(Scheme::nvfp4, {1, columns, 33}, ScaleLayout::row_major, 13);
    ASSERT_NO_FATAL_FAILURE(expect_product(unit, a, b));
  }
}

TEST(GemmTest, AlphaBetaAndBiasOfEveryType) {
  const Shape shape{2, 19, 35};
  QuantizedOperand a = make_operand(Scheme::nvfp4, {2, 19, 80}, ScaleLayout::row_major, 14);
  QuantizedOperand b = make_operand(Scheme::mxfp8_e4m3, {2, 35, 80}, ScaleLayout::swizzled, 15);
  for (const GemmUnit unit : test::available_units()) {
    for (const DType dtype : all_dtypes) {
      for (const DType bias_dtype : all_dtypes) {
        PlainTensor bias(bias_dtype, {1, 1, 35});
        bias.fill(normal_values(16));
        const Buffer bias_view = bias.buffer();
        for (const float beta : {0.0f, 1.0f, -0.5f}) {
          PlainTensor out(dtype, shape, 2, 9);
          if (beta != 0.0f) out.fill(normal_values(17));
          const GemmOptions options{.alpha = -1.5f, .beta = beta, .bias = &bias_view};
          const test::Reference want = test::multiply(a, b, out, options, &bias);
          test::run_unit(unit, a.operand(), b.quantized(), out.buffer(), options);
          ASSERT_TRUE(agrees(out, want, describe_case(unit, a.operand(), b.quantized())))
              << "beta " << beta << ", bias " << name_of(bias_dtype);
        }
      }
    }
  }
}

// Nothing but rows x columns of out is written.
TEST(GemmTest, GapsBetweenRowsOfOutAreKept) {
  QuantizedOperand a = make_operand(Scheme::mxfp4, {2, 33, 64}, ScaleLayout::row_major, 18);
  QuantizedOperand b = make_operand(Scheme::mxfp4, {1, 37, 64}, ScaleLayout::row_major, 19);
  for (const GemmUnit unit : test::available_units()) {
    for (const DType dtype : all_dtypes) {
      PlainTensor out(dtype, {2, 33, 37}, 4, 6);
      const std::vector<std::uint8_t> before = out.bytes;
      test::run_unit(unit, a.operand(), b.quantized(), out.buffer());
      const std::size_t size = size_of(dtype);
      for (std::int64_t i = 0; i < 2 * out.view.batch_stride; ++i) {
        const std::int64_t in_batch = i % out.view.batch_stride;
        const bool inside = in_batch < 33 * out.view.row_stride &&
                            in_batch % out.view.row_stride < out.view.shape.columns;
        if (inside) continue;
        const std::size_t at = static_cast<std::size_t>(i) * size;
        ASSERT_EQ(std::memcmp(out.bytes.data() + at, before.data() + at, size), 0)
            << name_of(unit) << ", " << name_of(dtype) << ": element " << i << " was overwritten";
      }
    }
  }
}

TEST(GemmTest, BatchesOfEqualSizeAndWithOneRightOperand) {
  for (const std::int64_t right_batch : {1, 3}) {
    for (const ScaleLayout layout : all_scale_layouts) {
      QuantizedOperand a = make_operand(Scheme::mxfp6_e3m2, {3, 21, 70}, layout, 20);
      QuantizedOperand b = make_operand(Scheme::mxint8, {right_batch, 40, 70}, layout, 21);
      PlainTensor dense(DType::bfloat16, {3, 21, 70});
      PlainTensor apart(DType::bfloat16, {3, 21, 70}, 2, 11);
      dense.fill(normal_values(22));
      apart.fill(normal_values(22));
      for (const GemmUnit unit : test::available_units()) {
        ASSERT_NO_FATAL_FAILURE(expect_product(unit, a, b));
        ASSERT_NO_FATAL_FAILURE(expect_product(unit, dense, b));
        ASSERT_NO_FATAL_FAILURE(expect_product(unit, apart, b, DType::float16));
      }
    }
  }
}

// Rows of a matrix lie in the gaps of the others, in a plain left operand and in out.
TEST(GemmTest, InterleavedMatrices) {
  PlainTensor a(DType::bfloat16, {3, 21, 70}), out(DType::bfloat16, {3, 21, 40});
  a.interleave_matrices();
  out.interleave_matrices();
  a.fill(normal_values(24));
  for (const std::int64_t right_batch : {1, 3}) {
    QuantizedOperand b =
        make_operand(Scheme::mxfp8_e4m3, {right_batch, 40, 70}, ScaleLayout::row_major, 25);
    const std::size_t bytes = gemm_workspace_bytes(a.operand(), b.quantized(), out.buffer());
    const test::AlignedMemory memory(bytes);
    gemm(a.operand(), b.quantized(), out.buffer(), {}, memory.workspace());
    EXPECT_TRUE(agrees(out, test::multiply(a, b, out), "interleaved"));
  }
}

// An empty sum is 0 even where the tensor scale is NaN; beta * out and bias remain.
TEST(GemmTest, KOfZero) {
  QuantizedOperand a(Scheme::nvfp4, {1, 3, 0}, ScaleLayout::row_major);
  QuantizedOperand b(Scheme::nvfp4, {1, 5, 0}, ScaleLayout::swizzled);
  a.tensor_scale = not_a_number;
  PlainTensor bias(DType::float32, {1, 1, 5});
  bias.fill(normal_values(23));
  const Buffer bias_view = bias.buffer();
  for (const GemmUnit unit : test::available_units()) {
    for (const float beta : {0.0f, 2.0f}) {
      PlainTensor out(DType::float32, {1, 3, 5});
      if (beta != 0.0f) out.fill(normal_values(24));
      const GemmOptions options{.beta = beta, .bias = &bias_view};
      const test::Reference want = test::multiply(a, b, out, options, &bias);
      test::run_unit(unit, a.operand(), b.quantized(), out.buffer(), options);
      ASSERT_TRUE(agrees(out, want, name_of(unit))) << "beta " << beta;
    }
  }
}

TEST(GemmTest, EmptyOutputsNeedNothing) {
  for (const Shape shape : {Shape{0, 3, 5}, Shape{1, 0, 5}, Shape{1, 3, 0}}) {
    QuantizedOperand a(Scheme::mxfp8_e4m3, {shape.batch, shape.rows, 40}, ScaleLayout::row_major);
    QuantizedOperand b(Scheme::mxfp8_e4m3, {1, shape.columns, 40}, ScaleLayout::row_major);
    PlainTensor out(DType::float32, shape);
    EXPECT_EQ(gemm_workspace_bytes(a.operand(), b.quantized(), out.buffer()), 0u);
    EXPECT_NO_THROW(gemm(a.operand(), b.quantized(), out.buffer(), {}, {}));
  }
}

// What the CPU lacks is refused, however little there is to compute.
TEST(GemmTest, EmptyOutputsAreNotFolded) {
  QuantizedOperand a(Scheme::mxfp8_e4m3, {1, 0, 64}, ScaleLayout::row_major);
  QuantizedOperand b(Scheme::mxfp8_e4m3, {1, 5, 64}, ScaleLayout::row_major);
  PlainTensor out(DType::float32, {1, 0, 5});
  const GemmOptions folded{.precision = GemmPrecision::folded};
  test::expect_failure<Unsupported>(
      "gemm: precision is folded, and the CPU's products are exact",
      [&] { gemm(a.operand(), b.quantized(), out.buffer(), folded, {}); });
}

// The bytes depend on the unit and on nothing else: not on threads, blocks or neighbours.
TEST(GemmTest, SameBytesWhateverTheThreads) {
  QuantizedOperand a = make_operand(Scheme::mxfp8_e4m3, {1, 200, 1056}, ScaleLayout::row_major, 25);
  QuantizedOperand b = make_operand(Scheme::nvfp4, {1, 333, 1056}, ScaleLayout::swizzled, 26);
  for (const GemmUnit unit : test::available_units()) {
    PlainTensor first(DType::float32, {1, 200, 333});
    test::run_unit(unit, a.operand(), b.quantized(), first.buffer(), {}, 1);
    for (const int threads : {2, 3, 16}) {
      PlainTensor out(DType::float32, {1, 200, 333});
      test::run_unit(unit, a.operand(), b.quantized(), out.buffer(), {}, threads);
      ASSERT_EQ(out.bytes, first.bytes) << name_of(unit) << ", " << threads << " threads";
    }
    // One row of the product, computed alone.
    QuantizedOperand row =
        make_operand(Scheme::mxfp8_e4m3, {1, 1, 1056}, ScaleLayout::row_major, 25);
    PlainTensor out(DType::float32, {1, 1, 333});
    test::run_unit(unit, row.operand(), b.quantized(), out.buffer());
    ASSERT_EQ(std::memcmp(out.bytes.data(), first.bytes.data(), out.bytes.size()), 0)
        << name_of(unit) << ": the first row alone has other bytes";
  }
}

TEST(GemmTest, PublicEntryUsesThePlannedUnit) {
  QuantizedOperand a = make_operand(Scheme::mxfp8_e4m3, {1, 50, 96}, ScaleLayout::row_major, 27);
  QuantizedOperand b = make_operand(Scheme::mxfp4, {1, 60, 96}, ScaleLayout::row_major, 28);
  PlainTensor out(DType::bfloat16, {1, 50, 60});
  const std::size_t bytes = gemm_workspace_bytes(a.operand(), b.quantized(), out.buffer());
  const test::AlignedMemory memory(bytes);
  gemm(a.operand(), b.quantized(), out.buffer(), {}, memory.workspace());
  EXPECT_TRUE(agrees(out, test::multiply(a, b, out), "planned unit"));
}

}  // namespace
}  // namespace mxkern
