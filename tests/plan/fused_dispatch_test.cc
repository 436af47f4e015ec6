// tests/plan/fused_dispatch_test.cc: which products that are folded or exact one kernel computes.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "cuda/operands/expand.h"
#include "cuda/operands/fold.h"
#include "cuda/gemm/hopper/multiply.h"
#include "mxkern/prepare_operand.h"
#include "plan/gemm_cuda.h"
#include "tests/support/gemm_case.h"

namespace mxkern {
namespace {

using namespace test;
using Case = GemmCase;

CudaGemmPlan plan_of(const Case& c) { return plan_gemm_cuda(c.problem(), hopper); }

TEST(PlanOneKernelTest, UnlessItIsLong) {
  for (const auto& [m, n, k, is_one] :
       {std::tuple{512, 4096, 4096, true},
        {64, 4096, 4096, true},
        {512, 6144, 4096, true},
        {1, 2048, 128, true},
        {2048, 4096, 4096, true},
        {4096, 14336, 4096, true},
        {8192, 8192, 8192, false},
        {16384, 4096, 14336, false},
        {128, 4096, 14336, false},  // the exact product has other tiles, divided along K
        {512, 4096, 4096 + 40, true}}) {
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

TEST(PlanOneKernelTest, OfOneMatrixOfAnySchemeThatFolds) {
  const Case whole{.shape = {1, 512, 4096}, .n = 4096};
  for (const Scheme left : all_schemes) {
    for (const Scheme right : all_schemes) {
      Case other = whole;
      other.left = left;
      other.right = right;
      EXPECT_EQ(plan_of(other).is_in_one_kernel,
                cuda::fold_facts(left).can_fold && cuda::fold_facts(right).can_fold)
          << name_of(left) << " " << name_of(right);
    }
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
  EXPECT_TRUE(plan_gemm_cuda({odd, quantized(whole.right, whole.right_shape()), whole.result(),
                              GemmPrecision::automatic},
                             hopper)
                  .is_in_one_kernel);
}

// What was expanded or folded ahead is multiplied.
TEST(PlanOneKernelTest, WhateverWasPrepared) {
  const Case c{.shape = {1, 512, 4096}, .n = 4096};
  for (const PreparedForm left :
       {PreparedForm::source, PreparedForm::folded, PreparedForm::expanded}) {
    for (const PreparedForm right :
         {PreparedForm::source, PreparedForm::folded, PreparedForm::expanded}) {
      const CudaGemmPlan plan = plan_gemm_cuda(
          {prepared(left, c.left, c.shape), prepared(right, c.right, c.right_shape()), c.result(),
           GemmPrecision::automatic},
          hopper);
      EXPECT_TRUE(plan.is_in_one_kernel);
      EXPECT_EQ(plan.left.folds, left != PreparedForm::folded);
      EXPECT_EQ(plan.left.expands, left != PreparedForm::expanded);
      EXPECT_EQ(plan.right.folds, right != PreparedForm::folded);
      EXPECT_EQ(plan.right.expands, right != PreparedForm::expanded);
    }
  }
}

TEST(PlanOneKernelTest, WorkingMemory) {
  for (const auto& [m, n, k] : {std::tuple{512, 4096, 4096}, {100, 1000, 8192}}) {
    const Case c{.shape = {1, m, k}, .n = n};
    const CudaGemmPlan plan = plan_of(c);
    ASSERT_TRUE(plan.is_in_one_kernel);
    const GemmProblem problem = c.problem();
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
  constexpr auto narrow = cuda::CoreElement::e4m3, wide = cuda::CoreElement::bfloat16;
  int divided = 0, undivided = 0;
  for (const int m : {16, 100, 128, 300, 512, 700, 1024, 1500, 4096, 8192}) {
    for (const int n : {1000, 2048, 4096, 6144, 8192, 14336}) {
      for (const int k : {128, 1024, 4096, 8192, 14336}) {
        const cuda::FusedDispatchTilesSm90 tiles =
            cuda::fused_dispatch_tiles_sm90(narrow, narrow, m, n, k, 132);
        if (!tiles.is_better) continue;
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
