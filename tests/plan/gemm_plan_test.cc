// tests/plan/gemm_plan_test.cc: plans of products as values: made once, run with other memory, and
// refused where they do not fit.
#include "mxkern/plan.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/error_message.h"
#include "tests/support/gemm_case.h"
#include "tests/support/gemm_reference.h"

namespace mxkern {
namespace {

using test::AlignedMemory;
using test::expect_failure;
using test::GemmCase;
using test::normal_values;
using test::PlainTensor;
using test::prepared;
using test::quantized;
using test::QuantizedOperand;

constexpr Scheme mxfp8 = Scheme::mxfp8_e4m3;
constexpr auto row_major = ScaleLayout::row_major;

QuantizedOperand make_operand(Scheme scheme, Shape shape, ScaleLayout layout, std::uint64_t seed) {
  QuantizedOperand operand(scheme, shape, layout);
  operand.quantize(normal_values(seed));
  return operand;
}

void expect_same(const GemmExplanation& got, const GemmExplanation& want) {
  EXPECT_EQ(got.device, want.device);
  EXPECT_EQ(got.path, want.path);
  EXPECT_EQ(got.reason, want.reason);
  EXPECT_EQ(got.left, want.left);
  EXPECT_EQ(got.right, want.right);
  EXPECT_EQ(got.kernel, want.kernel);
  EXPECT_EQ(got.error, want.error);
  EXPECT_EQ(got.workspace_bytes, want.workspace_bytes);
}

TEST(Plan, IsMadeOnceAndRunWithOtherMemory) {
  PlainTensor out(DType::float32, {2, 21, 40});
  QuantizedOperand first = make_operand(mxfp8, {2, 21, 70}, row_major, 1);
  QuantizedOperand weights = make_operand(Scheme::mxfp4, {1, 40, 70}, row_major, 2);
  const GemmPlan plan = plan_gemm(first.operand(), weights.quantized(), out.buffer());
  EXPECT_EQ(plan.device(), "cpu");
  EXPECT_EQ(plan.path(), "exact");
  const AlignedMemory memory(plan.workspace_bytes());
  for (const unsigned seed : {3u, 4u}) {
    QuantizedOperand a = make_operand(mxfp8, {2, 21, 70}, row_major, seed);
    QuantizedOperand b = make_operand(Scheme::mxfp4, {1, 40, 70}, row_major, seed + 10);
    PlainTensor planned(DType::float32, {2, 21, 40}), straight(DType::float32, {2, 21, 40});
    gemm(plan, a.operand(), b.quantized(), planned.buffer(), {}, memory.workspace());
    gemm(a.operand(), b.quantized(), straight.buffer(), {}, memory.workspace());
    EXPECT_EQ(planned.bytes, straight.bytes) << "seed " << seed;
  }
}

// A problem knows of no memory.
TEST(Plan, OfAProblemIsThatOfOperands) {
  for (const bool keeps_source : {true, false}) {
    for (const PreparedForm form : all_prepared_forms) {
      const GemmCase c;
      const PlannedOperand left(c.left, c.shape);
      const PlannedOperand right = PlannedOperand(c.right, c.right_shape());
      const PlannedTensor out(c.out, c.result().shape);
      const PreparedOperand ready = prepared(form, c.right, c.right_shape(), keeps_source);
      const GemmOptions options{.precision = GemmPrecision::automatic};
      for (const char* device : {"sm_80", "sm_90", "sm_100"}) {
        const auto text = [&](const auto& call) {
          try {
            return call();
          } catch (const std::exception& error) {
            GemmExplanation none;
            none.reason = error.what();
            return none;
          }
        };
        expect_same(
            text([&] {
              return explain(plan_gemm({left, right.prepared(form, keeps_source), out}, device));
            }),
            text([&] {
              return explain_gemm(quantized(c.left, c.shape), ready, c.result(), options, device);
            }));
      }
    }
  }
}

TEST(Plan, SaysWhatExplainGemmSays) {
  const PlannedOperand weights(Scheme::mxfp4, {1, 4096, 8192});
  const PlannedOperand few = weights.prepared(PreparedForm::few_tokens);
  const GemmPlan plan = plan_gemm(
      {PlannedTensor(DType::bfloat16, {1, 16, 8192}), few, {DType::bfloat16, {1, 16, 4096}}},
      "sm_90");
  EXPECT_EQ(plan.device(), "sm_90");
  EXPECT_EQ(plan.path(), "few tokens");
  EXPECT_NE(plan.error().find("2e-5"), std::string::npos) << plan.error();
  EXPECT_NE(plan.reason().find("weights are read once"), std::string::npos) << plan.reason();
  EXPECT_EQ(plan.workspace_bytes(), 0u);
  EXPECT_EQ(plan.problem().right, few);
  expect_same(explain(plan),
              explain_gemm(test::plain(DType::bfloat16, {1, 16, 8192}),
                           prepared(PreparedForm::few_tokens, Scheme::mxfp4, {1, 4096, 8192}),
                           test::plain(DType::bfloat16, {1, 16, 4096}), {}, "sm_90"));
}

// On a GPU the alignment of memory is part of a problem, and not beyond what differs.
TEST(Plan, AlignmentIsPartOfAProblem) {
  const auto at = [](std::uintptr_t offset) {
    return PlannedTensor(test::plain(DType::bfloat16, {1, 8, 64}, offset));
  };
  EXPECT_EQ(at(0), at(16));
  EXPECT_EQ(at(0), PlannedTensor(DType::bfloat16, {1, 8, 64}));
  EXPECT_NE(at(0), at(8));
  EXPECT_EQ(at(2).alignment, 2);
  const GemmCase c;
  BlockScaled apart = quantized(c.left, c.shape);
  apart.scales += 1;
  EXPECT_NE(PlannedOperand(apart), PlannedOperand(c.left, c.shape));
}

// What the strides of a single row say means nothing, in a plan and beside it.
TEST(Plan, StridesOfSingleRows) {
  QuantizedOperand b = make_operand(Scheme::mxfp4, {1, 40, 64}, row_major, 2);
  PlainTensor a(DType::float32, {1, 1, 64}), out(DType::float32, {1, 1, 40});
  a.fill(normal_values(1));
  Buffer odd = a.buffer();
  odd.row_stride = 1000;
  odd.batch_stride = 7;
  const GemmPlan plan = plan_gemm(odd, b.quantized(), out.buffer());
  EXPECT_EQ(plan.problem().left, PlannedTensor(DType::float32, {1, 1, 64}));
  const AlignedMemory memory(plan.workspace_bytes());
  gemm(plan, odd, b.quantized(), out.buffer(), {}, memory.workspace());
  gemm(plan, a.operand(), b.quantized(), out.buffer(), {}, memory.workspace());
}

TEST(Plan, ThatDoesNotFitIsRefused) {
  PlainTensor out(DType::float32, {1, 21, 40}), other_out(DType::bfloat16, {1, 21, 40});
  QuantizedOperand a = make_operand(mxfp8, {1, 21, 64}, row_major, 1);
  QuantizedOperand b = make_operand(Scheme::mxfp4, {1, 40, 64}, row_major, 2);
  QuantizedOperand lower = make_operand(mxfp8, {1, 20, 64}, row_major, 1);
  QuantizedOperand other = make_operand(Scheme::mxfp8_e5m2, {1, 40, 64}, row_major, 2);
  QuantizedOperand swizzled = make_operand(Scheme::mxfp4, {1, 40, 64}, ScaleLayout::swizzled, 2);
  const GemmPlan plan = plan_gemm(a.operand(), b.quantized(), out.buffer());
  const AlignedMemory memory(plan.workspace_bytes());
  const auto run = [&](QuantizedOperand& left, QuantizedOperand& right, PlainTensor& result,
                       const GemmOptions& options = {}) {
    gemm(plan, left.operand(), right.quantized(), result.buffer(), options, memory.workspace());
  };
  const std::string end = " than what the plan was made for; call plan_gemm with these arguments";
  expect_failure("gemm: a has another shape" + end, [&] { run(lower, b, out); });
  expect_failure("gemm: b has another scheme or dtype" + end, [&] { run(a, other, out); });
  expect_failure("gemm: b has another scale layout" + end, [&] { run(a, swizzled, out); });
  expect_failure("gemm: out has another dtype" + end, [&] { run(a, b, other_out); });
  expect_failure("gemm: options.beta has another value, 0 or not," + end,
                 [&] { run(a, b, out, {.beta = 1.0f}); });
  expect_failure("gemm: options.precision has another value" + end,
                 [&] { run(a, b, out, {.precision = GemmPrecision::exact}); });
  PlainTensor gaps(DType::float32, {1, 21, 40});
  Buffer view = gaps.buffer();
  view.row_stride = 41;
  expect_failure("gemm: out has other strides" + end,
                 [&] { gemm(plan, a.operand(), b.quantized(), view, {}, memory.workspace()); });
  // A plan for a GPU is none for the CPU.
  const GemmPlan hopper = plan_gemm({a.operand(), b.quantized(), out.buffer()}, "sm_90");
  expect_failure(
      "gemm: the plan is for sm_90 and out is on cpu, which is another device; call plan_gemm with "
      "these arguments",
      [&] { gemm(hopper, a.operand(), b.quantized(), out.buffer(), {}, memory.workspace()); });
  // Memory is checked as ever.
  expect_failure("gemm: workspace has 0 bytes",
                 [&] { gemm(plan, a.operand(), b.quantized(), out.buffer(), {}, Workspace{}); });
}

TEST(Plan, ProblemsAreChecked) {
  const PlannedOperand a(mxfp8, {1, 8, 64}), b(mxfp8, {1, 16, 64});
  const PlannedTensor out(DType::float32, {1, 8, 16});
  EXPECT_NO_THROW(plan_gemm({a, b, out}, "cpu"));
  expect_failure("gemm: b is plain; expected a quantized or prepared operand", [&] {
    plan_gemm({a, PlannedTensor(DType::float32, {1, 16, 64}), out}, "cpu");
  });
  expect_failure("gemm: a has K = 96 and b has K = 64", [&] {
    plan_gemm({PlannedOperand(mxfp8, {1, 8, 96}), b, out}, "cpu");
  });
  expect_failure("gemm: out has shape [1, 8, 17]; expected [1, 8, 16]", [&] {
    plan_gemm({a, b, PlannedTensor(DType::float32, {1, 8, 17})}, "cpu");
  });
  expect_failure("gemm: a has shape [1, -8, 64]; expected no negative extent", [&] {
    plan_gemm({PlannedOperand(mxfp8, {1, -8, 64}), b, out}, "cpu");
  });
  PlannedOperand odd = a;
  odd.alignment = 3;
  expect_failure("gemm: a has an alignment of 3; expected a power of two up to 32", [&] {
    plan_gemm({odd, b, out}, "cpu");
  });
  expect_failure("plan_gemm: device is 'sm_91'; expected cpu, sm_80", [&] {
    plan_gemm({a, b, out}, "sm_91");
  });
  expect_failure("plan_gemm: device is empty", [&] { plan_gemm({a, b, out}, ""); });
  expect_failure<Unsupported>("gemm: a was prepared without its codes and scales", [&] {
    plan_gemm({a.prepared(PreparedForm::expanded, false), b, out}, "cpu");
  });
}

}  // namespace
}  // namespace mxkern
