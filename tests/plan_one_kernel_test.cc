// tests/plan_one_kernel_test.cc: which products that are folded or exact one kernel computes.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "cuda/expand.h"
#include "cuda/multiply_sm90.h"
#include "mxkern/prepare_operand.h"
#include "plan_gemm_cuda.h"
#include "tests/support/gemm_case.h"

namespace mxkern {
namespace {

using namespace test;
using Case = GemmCase;

CudaGemmPlan plan_of(const Case& c) { return plan_gemm_cuda(c.problem(), hopper); }

TEST(PlanOneKernelTest, OfEverySize) {
  for (const auto& [m, n, k, is_one] :
       {std::tuple{512, 4096, 4096, true},
        {64, 4096, 4096, true},
        {512, 6144, 4096, true},
        {1, 2048, 128, true},
        {2048, 4096, 4096, true},
        {4096, 14336, 4096, true},
        {8192, 8192, 8192, true},
        {16384, 4096, 14336, true},
        {128, 4096, 14336, false},  // the exact product has other tiles, divided along K
        {512, 4096, 4096 + 64, false}}) {
    const Case c{.shape = {1, m, k}, .n = n};
    const CudaGemmPlan plan = plan_of(c);
    EXPECT_EQ(plan.path, CudaGemmPath::folded_or_exact);
    EXPECT_EQ(plan.is_in_one_kernel, is_one) << m << " " << n << " " << k;
    if (!is_one) continue;
    EXPECT_TRUE(plan.left.expands && plan.right.expands && !plan.left.decodes);
    const GemmExplanation text = explain(plan, c.problem(), hopper);
    EXPECT_NE(text.kernel.find("in one kernel"), std::string::npos) << text.kernel;
  }
}

TEST(PlanOneKernelTest, OfOneMatrixOfE4m3InWholeWords) {
  const Case whole{.shape = {1, 512, 4096}, .n = 4096};
  ASSERT_TRUE(plan_of(whole).is_in_one_kernel);
  for (const Scheme scheme : {Scheme::mxfp8_e5m2, Scheme::mxfp4, Scheme::mxfp6_e2m3}) {
    Case other = whole;
    other.left = scheme;
    EXPECT_FALSE(plan_of(other).is_in_one_kernel) << name_of(scheme);
    other = whole;
    other.right = scheme;
    EXPECT_FALSE(plan_of(other).is_in_one_kernel) << name_of(scheme);
  }
  Case other = whole;
  other.shape.batch = 2;
  EXPECT_FALSE(plan_of(other).is_in_one_kernel);
  for (const GemmPrecision precision : {GemmPrecision::folded, GemmPrecision::exact}) {
    other = whole;
    other.precision = precision;
    EXPECT_FALSE(plan_of(other).is_in_one_kernel);
  }
  BlockScaled odd = quantized(whole.left, whole.shape);
  odd.codes = static_cast<std::uint8_t*>(somewhere(1));
  EXPECT_FALSE(plan_gemm_cuda({odd, quantized(whole.right, whole.right_shape()), whole.result(),
                               GemmPrecision::automatic},
                              hopper)
                   .is_in_one_kernel);
}

// What was expanded ahead is multiplied; and who sets counters to zeros is a kernel that folds.
TEST(PlanOneKernelTest, WhatWasPrepared) {
  const Case c{.shape = {1, 512, 4096}, .n = 4096};
  const auto is_one = [&](const GemmOperand& left, const GemmRightOperand& right) {
    return plan_gemm_cuda({left, right, c.result(), GemmPrecision::automatic}, hopper)
        .is_in_one_kernel;
  };
  const auto left = [&](PreparedForm form) { return prepared(form, c.left, c.shape); };
  const auto right = [&](PreparedForm form) { return prepared(form, c.right, c.right_shape()); };
  const BlockScaled a = quantized(c.left, c.shape), b = quantized(c.right, c.right_shape());
  EXPECT_TRUE(is_one(a, b));
  EXPECT_TRUE(is_one(a, right(PreparedForm::folded)));
  EXPECT_TRUE(is_one(left(PreparedForm::folded), b));
  EXPECT_FALSE(is_one(left(PreparedForm::folded), right(PreparedForm::folded)));
  EXPECT_FALSE(is_one(a, right(PreparedForm::expanded)));
  EXPECT_FALSE(is_one(left(PreparedForm::expanded), b));
}

TEST(PlanOneKernelTest, WorkingMemory) {
  for (const auto& [m, n, k] : {std::tuple{512, 4096, 4096}, {100, 1000, 8192}}) {
    const Case c{.shape = {1, m, k}, .n = n};
    const CudaGemmPlan plan = plan_of(c);
    ASSERT_TRUE(plan.is_in_one_kernel);
    const CudaGemmProblem problem = c.problem();
    EXPECT_GE(
        plan.right.expanded,
        plan.left.expanded + static_cast<std::size_t>(cuda::expanded_layout(problem.left).bytes));
    EXPECT_GE(
        plan.row_counters,
        plan.right.expanded + static_cast<std::size_t>(cuda::expanded_layout(problem.right).bytes));
    EXPECT_GE(plan.part_sums, plan.row_counters + 4 * sizeof(std::uint32_t));
    EXPECT_GE(plan.workspace_bytes, plan.part_sums + static_cast<std::size_t>(plan.part_bytes));
  }
}

// The exact product gives the bytes that it gives in a kernel of its own: sums over K are divided
// alike.
TEST(PlanOneKernelTest, DividedAlike) {
  int divided = 0, undivided = 0;
  for (const int m : {16, 100, 128, 300, 512, 700, 1024, 1500, 4096, 8192}) {
    for (const int n : {1000, 2048, 4096, 6144, 8192, 14336}) {
      for (const int k : {128, 1024, 4096, 8192, 14336}) {
        const cuda::EitherTilesSm90 tiles = cuda::either_tiles_sm90(m, n, k, 132);
        if (!tiles.is_possible) continue;
        constexpr cuda::CoreElement wide = cuda::CoreElement::bfloat16;
        const cuda::TileSm90 alone = cuda::tile_sm90(wide, wide, 1, m, n, k, 132);
        const auto work = cuda::work_sm90(alone, wide, 1, 1, m, n, k, 132);
        EXPECT_EQ(tiles.exact.columns, tiles.folded.columns);
        EXPECT_EQ(tiles.exact.cluster, tiles.folded.cluster);
        EXPECT_EQ(tiles.exact_work.divided(), work.divided());
        EXPECT_TRUE(work.divided() == 0 || alone.columns == tiles.exact.columns);
        ++(work.divided() == 0 ? undivided : divided);
      }
    }
  }
  EXPECT_GT(divided, 0);
  EXPECT_GT(undivided, 0);
}

}  // namespace
}  // namespace mxkern
