// tests/plan/countable_test.cc: products of more tiles or steps than can be counted have no plan,
// and the largest that have one are counted right.
#include <gtest/gtest.h>

#include <string>

#include "mxkern/core/error.h"
#include "mxkern/gemm.h"
#include "plan/gemm_cuda.h"
#include "tests/support/error_message.h"
#include "tests/support/gemm_case.h"

namespace mxkern {
namespace {

using namespace test;

constexpr const char* architectures[] = {"sm_80", "sm_90", "sm_100", "sm_120"};

struct Extents {
  std::int64_t batch, m, n, k;
};

GemmProblem problem_of(const Extents& e, PreparedForm form, GemmPrecision precision) {
  const Shape right{1, e.n, e.k};
  const GemmRightOperand b = form == PreparedForm::source
                                 ? GemmRightOperand(quantized(Scheme::mxfp4, right))
                                 : GemmRightOperand(prepared(form, Scheme::mxfp4, right));
  return {quantized(Scheme::mxfp8_e4m3, {e.batch, e.m, e.k}), b,
          plain(DType::bfloat16, {e.batch, e.m, e.n}), precision};
}

template <class Check>
void for_each_problem(const Extents& extents, Check&& check) {
  for (const char* architecture : architectures) {
    for (const PreparedForm form : all_prepared_forms) {
      for (const GemmPrecision precision : {GemmPrecision::automatic, GemmPrecision::exact}) {
        SCOPED_TRACE(testing::Message() << architecture << ", " << name_of(form) << ", "
                                        << name_of(precision) << ": " << extents.batch << " x "
                                        << extents.m << " x " << extents.n << " x " << extents.k);
        check(problem_of(extents, form, precision), capabilities_of(architecture));
      }
    }
  }
}

TEST(PlanCountableTest, WhatCannotBeCountedIsRefused) {
  constexpr std::int64_t one = 1;
  const std::pair<Extents, const char*> cases[] = {
      {{1, one << 24, one << 24, 32}, "the output has 68719476736 tiles of 64 x 64"},
      {{1, one << 21, one << 21, 32}, "the output has 1073741824 tiles of 64 x 64"},
      {{one << 30, 1, 1, 128}, "split it, or its batch"},
      {{one << 33, 1, 1, 128}, "split it, or its batch"},
      {{1, 16, one << 37, 128}, "expected at most 2147482624 of each"},
      {{1, one << 31, 128, 128}, "expected at most 2147482624 of each"},
      {{1, 16, 128, one << 39}, "K = 549755813888; expected at most 2147482624"},
      {{1, 1, 1, (one << 31) - 1023}, "K = 2147482625; expected at most 2147482624"},
      {{1, one << 20, one << 20, one << 19}, "expected fewer than 2^58 multiplications"},
  };
  for (const auto& [extents, says] : cases) {
    for_each_problem(extents, [&, text = says](const GemmProblem& problem,
                                               const CudaGemmCapabilities& capabilities) {
      expect_failure<InvalidArgument>(std::string("gemm: "),
                                      [&] { plan_gemm_cuda(problem, capabilities); });
      expect_failure<InvalidArgument>(text, [&] { plan_gemm_cuda(problem, capabilities); });
    });
  }
}

TEST(PlanCountableTest, TheLargestAreCounted) {
  constexpr std::int64_t one = 1;
  const Extents cases[] = {
      {1, one << 20, one << 20, 32},        {1, one << 20, one << 20, (one << 18) - 64},
      {(one << 30) - 1, 1, 1, 32},          {1, 1, 1, (one << 31) - 1024},
      {1, (one << 31) - 1024, 64, 1 << 16}, {1, 1, (one << 31) - 1024, 1 << 16},
  };
  for (const Extents& extents : cases) {
    for_each_problem(extents,
                     [&](const GemmProblem& problem, const CudaGemmCapabilities& capabilities) {
                       const CudaGemmPlan plan = plan_gemm_cuda(problem, capabilities);
                       EXPECT_NE(plan.path, CudaGemmPath::nothing);
                       const std::string text = explain(plan, problem, capabilities).kernel;
                       EXPECT_EQ(text.find(" -"), std::string::npos) << text;
                     });
  }
}

// Thread blocks across the weights' rows are fewer than rows can be.
TEST(PlanCountableTest, FewTokensOfVeryManyRowsTakeAnotherWay) {
  constexpr std::int64_t most = (65535 - 1023) * 32;
  for (const std::int64_t rows : {most, most + 1}) {
    const GemmProblem problem{plain(DType::bfloat16, {1, 8, 128}),
                              prepared(PreparedForm::few_tokens, Scheme::mxfp4, {1, rows, 128}),
                              plain(DType::bfloat16, {1, 8, rows}), GemmPrecision::automatic};
    EXPECT_EQ(plan_gemm_cuda(problem, hopper).path,
              rows == most ? CudaGemmPath::few_tokens : CudaGemmPath::exact);
  }
}

// A plan asks where codes will be and not what they are.
TEST(PlanCountableTest, CodesThatAreNotThereYetChangeNoPlan) {
  for (const char* architecture : architectures) {
    for (const PreparedForm form : all_prepared_forms) {
      const Shape left{1, 512, 1024}, right{1, 2048, 1024};
      const Buffer out = plain(DType::bfloat16, {1, 512, 2048});
      BlockScaled a = quantized(Scheme::mxfp8_e4m3, left);
      PreparedOperand b = prepared(form, Scheme::mxfp8_e4m3, right);
      const auto plan = [&] {
        return plan_gemm_cuda(form == PreparedForm::source
                                  ? GemmProblem{a, b.source, out, GemmPrecision::automatic}
                                  : GemmProblem{a, b, out, GemmPrecision::automatic},
                              capabilities_of(architecture));
      };
      const CudaGemmPlan wanted = plan();
      a.codes = a.scales = nullptr;
      if (form == PreparedForm::source) b.source.codes = b.source.scales = nullptr;
      const CudaGemmPlan got = plan();
      EXPECT_EQ(got.path, wanted.path) << architecture << ", " << name_of(form);
      EXPECT_STREQ(got.reason, wanted.reason);
      EXPECT_EQ(got.workspace_bytes, wanted.workspace_bytes);
    }
  }
}

}  // namespace
}  // namespace mxkern
