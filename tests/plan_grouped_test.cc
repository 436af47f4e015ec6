// tests/plan_grouped_test.cc: which kernel computes a grouped product, without a GPU.
#include "plan_grouped.h"

#include <set>
#include <string>

#include "mxkern/core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/gemm_case.h"

namespace mxkern {
namespace {

using namespace test;

GroupedQuestion question(std::int64_t groups, std::int64_t rows, bool has_sm90 = true) {
  return {Scheme::mxfp4, DType::bfloat16, has_sm90, 132, groups, rows, 5760, 2880};
}

TEST(PlanGrouped, MoreRowsAThreadBlockWhereGroupsHaveMore) {
  EXPECT_EQ(plan_grouped(question(32, 64)).tokens, 8);
  EXPECT_EQ(plan_grouped(question(32, 32 * 10)).tokens, 16);
  EXPECT_EQ(plan_grouped(question(32, 32 * 20)).tokens, 32);
  EXPECT_EQ(plan_grouped(question(32, 32 * 40)).tokens, 64);
  EXPECT_EQ(plan_grouped(question(32, 32 * 100)).tokens, 128);
  EXPECT_EQ(plan_grouped(question(32, 32 * 1000)).tokens, 128);
  EXPECT_EQ(plan_grouped(question(32, 32 * 1000, false)).tokens, 16);
}

// All that kernels are compiled for, and what they have room for.
TEST(PlanGrouped, EveryPlanIsOneOfAKernel) {
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : {DType::bfloat16, DType::float16}) {
      for (const std::int64_t groups : {0, 1, 7, 128}) {
        for (const std::int64_t rows : {1, 5, 33, 300, 5000, 100000}) {
          for (const std::int64_t outputs : {1, 40, 2880, 14336}) {
            for (const std::int64_t columns : {1, 96, 2880, 14336}) {
              for (const bool has_sm90 : {false, true}) {
                const FewPlan plan =
                    plan_grouped({scheme, dtype, has_sm90, 132, groups, rows, outputs, columns});
                EXPECT_GE(plan.stages, 2);
                EXPECT_EQ(plan.log2_ranks, 0);
                EXPECT_EQ(plan.idle_groups, 0);
                EXPECT_LE(plan.shared_bytes, 227 * 1024);
                EXPECT_EQ(plan.on_sm90, plan.tokens > 16);
                EXPECT_TRUE(has_sm90 || !plan.on_sm90);
                EXPECT_EQ(plan.x_stages == 0, !plan.on_sm90);
                const std::set<int> sizes = {8, 16, 32, 64, 128};
                EXPECT_TRUE(sizes.count(plan.tokens) == 1) << plan.tokens;
              }
            }
          }
        }
      }
    }
  }
}

// There is a place for all rows, however they are divided.
TEST(PlanGrouped, PlacesForAllGroups) {
  for (const std::int64_t size : {1, 8, 64}) {
    for (std::int64_t first = 0; first <= 40; ++first) {
      for (std::int64_t second = 0; first + second <= 40; ++second) {
        const std::int64_t none = 40 - first - second;
        const std::int64_t wanted =
            ceil_div(first, size) + ceil_div(second, size) + ceil_div(none, size);
        EXPECT_GE(places_of_groups(40, 2, size), wanted);
      }
    }
  }
  EXPECT_GE(places_of_groups(40, 0, 64), 1);
}

TEST(PlanGrouped, WhatIsMadeOfTheOperands) {
  const CudaGemmCapabilities hopper, ampere = capabilities_of("sm_80");
  const Buffer x = plain(DType::bfloat16, {1, 64, 256});
  const BlockScaled q = quantized(Scheme::mxfp8_e4m3, {1, 64, 256});
  const BlockScaled w = quantized(Scheme::mxfp4, {8, 96, 256});
  const auto ready = [&](PreparedForm form, bool has_source = true) {
    PreparedOperand p{form, w, nullptr, 0};
    if (!has_source) p.source.codes = p.source.scales = nullptr;
    return p;
  };
  const CudaGroupedPlan best = plan_grouped_cuda(x, ready(PreparedForm::few_tokens), hopper);
  EXPECT_TRUE(best.is_few && !best.makes_right && !best.expands_left);
  EXPECT_EQ(best.workspace_bytes, 0u);
  const CudaGroupedPlan unprepared = plan_grouped_cuda(x, w, hopper);
  EXPECT_TRUE(unprepared.is_few && unprepared.makes_right);
  EXPECT_GE(unprepared.workspace_bytes, static_cast<std::size_t>(8 * 96 * 128));
  const CudaGroupedPlan of_codes = plan_grouped_cuda(q, ready(PreparedForm::few_tokens), hopper);
  EXPECT_TRUE(of_codes.is_few && of_codes.expands_left);
  EXPECT_GE(of_codes.workspace_bytes, static_cast<std::size_t>(64 * 256 * 2));
  const Buffer wide = plain(DType::float32, {1, 64, 256});
  EXPECT_FALSE(plan_grouped_cuda(wide, w, hopper).is_few);
  EXPECT_FALSE(plan_grouped_cuda(x, ready(PreparedForm::expanded), hopper).makes_right);
  const CudaGroupedPlan portable = plan_grouped_cuda(x, w, ampere);
  EXPECT_TRUE(!portable.is_few && portable.makes_right && !portable.expands_left);
  EXPECT_GE(portable.workspace_bytes, static_cast<std::size_t>(8 * 96 * 256 * 2));
  // Folded rows are not read, and need what they were made of.
  EXPECT_TRUE(plan_grouped_cuda(x, ready(PreparedForm::folded), hopper).makes_right);
  expect_failure<Unsupported>("b was prepared in the form folded without its codes", [&] {
    plan_grouped_cuda(x, ready(PreparedForm::folded, false), hopper);
  });
  expect_failure<Unsupported>("b was prepared in the form few_tokens without its codes", [&] {
    plan_grouped_cuda(x, ready(PreparedForm::few_tokens, false), ampere);
  });
}

}  // namespace
}  // namespace mxkern
