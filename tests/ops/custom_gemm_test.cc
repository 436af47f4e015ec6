// tests/ops/custom_gemm_test.cc: products whose right operand is by a scheme of the user's own,
// decoded to bfloat16, against double precision.
#include <gtest/gtest.h>

#include "cpu/gemm/task.h"
#include "mxkern/core/float_environment.h"
#include "tests/support/custom_operand.h"
#include "tests/support/error_message.h"
#include "tests/support/gemm_reference.h"

namespace mxkern {
namespace {

using namespace test;

AnyScheme power_scheme(AnyFormat element, std::int64_t columns, std::int64_t rows = 1) {
  return {element, {AnyScaleKind::power, 8, 0}, rows, columns, TensorScales::none};
}

const AnyFormat e3m4{3, 4, true, false, Specials::none};

std::vector<AnyScheme> exact_schemes() {
  return {power_scheme(e3m4, 64),
          power_scheme({2, 1, true, false, Specials::none}, 16),
          power_scheme({5, 7, true, false, Specials::ieee}, 32),
          power_scheme({0, 7, false, false, Specials::none}, 10),
          power_scheme(AnyFormat::integer(9), 33),
          power_scheme(AnyFormat::integer(8, false), 128, 4),
          power_scheme(e3m4, 0),
          power_scheme(e3m4, 0, 0)};
}

Values normal(std::uint64_t seed) {
  return [seed](std::int64_t batch, std::int64_t row, std::int64_t k) {
    RandomBits random(seed * 1000003 + static_cast<std::uint64_t>((batch * 517 + row) * 8191 + k));
    const double sign = random.next() % 2 == 0 ? 1.0 : -1.0;
    return sign * (0.01 + static_cast<double>(random.next() % 1024) / 256.0);
  };
}

AlignedMemory workspace_of(const GemmOperand& a, const AnyBlockScaled& b, const Buffer& out,
                           const GemmOptions& options) {
  return AlignedMemory(custom_gemm_workspace_bytes(a, b, out, options));
}

TEST(CustomGemm, WhichSchemesBfloat16Holds) {
  for (const AnyScheme& scheme : exact_schemes()) EXPECT_TRUE(scheme.is_exact_in_bfloat16());
  EXPECT_FALSE(power_scheme({4, 8, true, false, Specials::none}, 32).is_exact_in_bfloat16());
  EXPECT_FALSE(power_scheme(AnyFormat::integer(10), 32).is_exact_in_bfloat16());
  EXPECT_FALSE(power_scheme(AnyFormat::integer(9, false), 32).is_exact_in_bfloat16());
  AnyScheme other = power_scheme(e3m4, 32);
  other.scale = {AnyScaleKind::magnitude, 4, 3};
  EXPECT_FALSE(other.is_exact_in_bfloat16());
  other.tensor_scales = TensorScales::tensor;
  EXPECT_FALSE(other.is_exact_in_bfloat16());
  for (const Scheme scheme : all_schemes) {
    const bool is_mx = facts_of(scheme).scales_are_powers;
    EXPECT_EQ(AnyScheme::of(scheme).is_exact_in_bfloat16(), is_mx) << name_of(scheme);
  }
}

TEST(CustomGemm, PlainLeftOperands) {
  for (const AnyScheme& scheme : exact_schemes()) {
    for (const Shape& shape : {Shape{1, 1, 1}, Shape{1, 5, 33}, Shape{2, 70, 130}}) {
      CustomOperand b(scheme, {shape.batch, 37, shape.columns}, normal(1));
      for (const DType dtype : all_dtypes) {
        PlainTensor a(dtype, shape, 3);
        a.fill(normal(2));
        PlainTensor out(dtype, {shape.batch, shape.rows, 37}, 1), bias(DType::float32, {1, 1, 37});
        out.fill(normal(3));
        bias.fill(normal(4));
        const Buffer offset = bias.buffer();
        const GemmOptions options{.alpha = 1.5f, .beta = -2.0f, .bias = &offset};
        const Reference want = multiply(a, b, out, options, &bias);
        const AlignedMemory memory = workspace_of(a.operand(), b.view, out.buffer(), options);
        gemm(a.operand(), b.view, out.buffer(), options, memory.workspace());
        ASSERT_TRUE(agrees(out, want, name_of(dtype)));
      }
    }
  }
}

TEST(CustomGemm, QuantizedLeftOperandsAndOneMatrixForABatch) {
  CustomOperand b(power_scheme(e3m4, 16), {1, 19, 96}, normal(1));
  for (const Scheme scheme : all_schemes) {
    for (const ScaleLayout layout : all_scale_layouts) {
      QuantizedOperand a(scheme, {3, 21, 96}, layout);
      a.quantize(normal(5));
      PlainTensor out(DType::float32, {3, 21, 19});
      const Reference want = multiply(a, b, out);
      const AlignedMemory memory = workspace_of(a.operand(), b.view, out.buffer(), {});
      gemm(a.operand(), b.view, out.buffer(), {}, memory.workspace());
      ASSERT_TRUE(agrees(out, want, name_of(scheme)));
    }
  }
}

// The units that pack their right operand; this machine's gemm takes one of them.
TEST(CustomGemm, EveryUnitTakesRowsOfBfloat16) {
  for (const GemmUnit unit : available_units()) {
    if (is_for_few_rows(unit)) continue;
    for (const std::int64_t k : {1, 31, 32, 100, 1300}) {
      CustomOperand b(power_scheme(e3m4, 64), {1, 45, k}, normal(6));
      PlainTensor rows(DType::bfloat16, {1, 45, k}, 7), a(DType::bfloat16, {1, 34, k});
      dequantize(b.view, AnyBuffer(rows.buffer()));
      a.fill(normal(7));
      PlainTensor out(DType::float32, {1, 34, 45});
      const CpuGemmProblem problem = cpu_problem(a.operand(), rows.buffer(), out.buffer());
      const CpuGemmPlan plan = plan_gemm_cpu_with(unit, problem, 2);
      const AlignedMemory memory(plan.workspace_bytes);
      const FloatEnvironment environment;
      cpu::gemm(make_task(a.operand(), rows.buffer(), out.buffer(), {}), plan,
                memory.workspace().data);
      ASSERT_TRUE(agrees(out, multiply(a, b, out), name_of(unit)));
    }
  }
}

// Sums of products that are far from 1, of rows that span most of float32.
TEST(CustomGemm, LargeAndSmallScales) {
  const Values wide = [](std::int64_t, std::int64_t row, std::int64_t k) {
    return std::ldexp(1.0 + static_cast<double>(k % 7) / 8.0,
                      static_cast<int>(row % 2 ? 100 : -90)) *
           (k % 3 == 0 ? -1 : 1);
  };
  CustomOperand b(power_scheme(e3m4, 32), {1, 12, 64}, wide);
  PlainTensor a(DType::bfloat16, {1, 33, 64});
  a.fill([](std::int64_t, std::int64_t row, std::int64_t k) {
    return std::ldexp(1.0 + static_cast<double>(k % 5) / 4.0, static_cast<int>(row) - 20);
  });
  PlainTensor out(DType::float32, {1, 33, 12});
  const AlignedMemory memory = workspace_of(a.operand(), b.view, out.buffer(), {});
  gemm(a.operand(), b.view, out.buffer(), {}, memory.workspace());
  ASSERT_TRUE(agrees(out, multiply(a, b, out), "scales"));
}

TEST(CustomGemm, PoisonedBlocksReachTheirColumns) {
  CustomOperand b(power_scheme(e3m4, 32), {1, 6, 64},
                  [](std::int64_t, std::int64_t row, std::int64_t k) {
                    return row == 2 && k == 40 ? std::numeric_limits<double>::quiet_NaN() : 1.0;
                  });
  for (const DType dtype : all_dtypes) {
    PlainTensor a(dtype, {1, 40, 64});
    a.fill(normal(8));
    PlainTensor out(DType::float32, {1, 40, 6});
    const AlignedMemory memory = workspace_of(a.operand(), b.view, out.buffer(), {});
    gemm(a.operand(), b.view, out.buffer(), {}, memory.workspace());
    ASSERT_TRUE(agrees(out, multiply(a, b, out), name_of(dtype)));
  }
}

TEST(CustomGemm, Refusals) {
  PlainTensor a(DType::bfloat16, {1, 4, 64}), out(DType::float32, {1, 4, 8});
  CustomOperand wide(power_scheme({4, 8, true, false, Specials::none}, 32), {1, 8, 64}, normal(9));
  CustomOperand b(power_scheme(e3m4, 32), {1, 8, 64}, normal(9)),
      other(power_scheme(e3m4, 32), {1, 8, 32}, normal(9));
  const auto message = [&](const AnyBlockScaled& right, GemmOptions options, std::size_t bytes) {
    const AlignedMemory memory(bytes);
    return error_message(
        [&] { gemm(a.operand(), right, out.buffer(), options, memory.workspace()); });
  };
  EXPECT_NE(message(wide.view, {}, 1).find("at most 8 significant bits"), std::string::npos);
  AnyBlockScaled none = b.view;
  none.scheme.element.mantissa_bits = 40;
  EXPECT_NE(message(none, {}, 1).find("is none whose values float32 holds"), std::string::npos);
  EXPECT_NE(message(other.view, {}, 1).find("32"), std::string::npos);
  EXPECT_NE(message(b.view, {}, 64).find("workspace"), std::string::npos);
  EXPECT_NE(message(b.view, {.precision = GemmPrecision::folded}, 1).find("folded"),
            std::string::npos);
}

TEST(CustomGemm, WhatIsWrittenIsApartFromWhatIsRead) {
  // Working memory that has room behind it for each of the others.
  constexpr std::size_t room = 1 << 16;
  const AlignedMemory memory(2 * room);
  const Workspace whole = memory.workspace();
  char* const begin = static_cast<char*>(whole.data);
  PlainTensor a(DType::bfloat16, {1, 4, 64}), out(DType::float32, {1, 4, 8});
  PlainTensor bias(DType::float32, {1, 1, 8});
  CustomOperand b(power_scheme(e3m4, 32), {1, 8, 64}, normal(9));
  const auto message = [&](void* at_a, void* at_bias, void* at_codes, void* at_scales,
                           void* at_out) {
    Buffer left = a.buffer(), offset = bias.buffer(), to = out.buffer();
    AnyBlockScaled right = b.view;
    if (at_a != nullptr) left.data = at_a;
    if (at_bias != nullptr) offset.data = at_bias;
    if (at_codes != nullptr) right.codes = at_codes;
    if (at_scales != nullptr) right.scales = at_scales;
    if (at_out != nullptr) to.data = at_out;
    return error_message([&] { gemm(left, right, to, {.bias = &offset}, {begin, room}); });
  };
  EXPECT_NE(message(begin, nullptr, nullptr, nullptr, nullptr).find("overlaps a"),
            std::string::npos);
  EXPECT_NE(message(nullptr, begin, nullptr, nullptr, nullptr).find("overlaps bias"),
            std::string::npos);
  EXPECT_NE(message(nullptr, nullptr, begin + 64, nullptr, nullptr).find("overlaps b.codes"),
            std::string::npos);
  EXPECT_NE(message(nullptr, nullptr, nullptr, begin, nullptr).find("overlaps b.scales"),
            std::string::npos);
  EXPECT_NE(message(nullptr, nullptr, nullptr, nullptr, begin).find("overlaps out"),
            std::string::npos);
  char* const behind = begin + room;
  EXPECT_NE(message(nullptr, nullptr, behind + 64, nullptr, behind).find("out overlaps b.codes"),
            std::string::npos);
}

TEST(CustomGemm, OutputsWithoutElementsAndSumsOfNothing) {
  CustomOperand none(power_scheme(e3m4, 32), {1, 0, 64}, normal(9));
  PlainTensor a(DType::bfloat16, {1, 4, 64}), out(DType::float32, {1, 4, 0});
  gemm(a.operand(), none.view, out.buffer(), {}, {});
  CustomOperand flat(power_scheme(e3m4, 32), {1, 3, 0}, normal(9));
  PlainTensor thin(DType::bfloat16, {1, 4, 0}), zeros(DType::float32, {1, 4, 3});
  const AlignedMemory memory = workspace_of(thin.operand(), flat.view, zeros.buffer(), {});
  gemm(thin.operand(), flat.view, zeros.buffer(), {}, memory.workspace());
  EXPECT_EQ(zeros.value(0, 3, 2), 0.0);
}

}  // namespace
}  // namespace mxkern
