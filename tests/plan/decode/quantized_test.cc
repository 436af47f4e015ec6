// tests/plan/decode/quantized_test.cc: which products take few quantized rows with weights prepared
// for few tokens, and what is done with these rows, without a GPU.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "check/arguments.h"
#include "plan/decode/problem.h"
#include "plan/gemm_cuda.h"
#include "tests/support/gemm_case.h"

namespace mxkern {
namespace {

using namespace test;

constexpr auto automatic = GemmPrecision::automatic;

GemmProblem few_rows(std::int64_t rows, Scheme left, GemmPrecision precision,
                     DType dtype = DType::bfloat16, bool keep_source = true) {
  return {quantized(left, {1, rows, 1024}),
          prepared(PreparedForm::few_tokens, Scheme::mxfp4, {1, 2048, 1024}, keep_source),
          plain(dtype, {1, rows, 2048}), precision};
}

CudaGemmPath path_of(const GemmProblem& problem, const char* architecture = "sm_90") {
  return plan_gemm_cuda(problem, capabilities_of(architecture)).path;
}

TEST(PlanDecodeQuantized, UpToAsManyRowsAsPlainOnes) {
  for (const Scheme left : all_schemes) {
    EXPECT_EQ(path_of(few_rows(1, left, automatic)), CudaGemmPath::few_tokens);
    EXPECT_EQ(path_of(few_rows(512, left, GemmPrecision::exact)), CudaGemmPath::few_tokens);
    EXPECT_EQ(path_of(few_rows(2048, left, GemmPrecision::exact)), CudaGemmPath::few_tokens);
    EXPECT_EQ(path_of(few_rows(2049, left, GemmPrecision::exact)), CudaGemmPath::exact);
    EXPECT_EQ(path_of(few_rows(1, left, automatic), "sm_80"), CudaGemmPath::portable);
    EXPECT_EQ(path_of(few_rows(256, left, automatic), "sm_100"), CudaGemmPath::few_tokens);
    EXPECT_NE(path_of(few_rows(257, left, automatic), "sm_100"), CudaGemmPath::few_tokens);
  }
}

TEST(PlanDecodeQuantized, MoreAreFoldedWhereThatCanBe) {
  EXPECT_EQ(path_of(few_rows(384, Scheme::mxfp8_e4m3, automatic)), CudaGemmPath::few_tokens);
  EXPECT_EQ(path_of(few_rows(385, Scheme::mxfp8_e4m3, automatic)), CudaGemmPath::folded_or_exact);
  EXPECT_EQ(path_of(few_rows(385, Scheme::mxfp8_e4m3, automatic, DType::float32)),
            CudaGemmPath::few_tokens);
  EXPECT_EQ(path_of(few_rows(385, Scheme::mxfp8_e4m3, automatic, DType::bfloat16, false)),
            CudaGemmPath::few_tokens);
  EXPECT_EQ(path_of(few_rows(385, Scheme::nvfp4, automatic)), CudaGemmPath::few_tokens);
}

// Under a power of two a row each, but for those of NVFP4.
TEST(PlanDecodeQuantized, RowsAreExpandedFirst) {
  for (const Scheme left : {Scheme::mxfp8_e4m3, Scheme::nvfp4}) {
    const GemmProblem few = few_rows(16, left, automatic);
    const CudaGemmPlan plan = plan_gemm_cuda(few, hopper);
    EXPECT_TRUE(plan.left.expands && plan.right.is_prepared && !plan.right.expands);
    const std::size_t exponents = left == Scheme::nvfp4 ? 0 : 256;
    EXPECT_EQ(plan.workspace_bytes, 16 * 1024 * 2 + exponents);
    const GemmExplanation text = explain(plan, few, hopper);
    EXPECT_NE(text.left.find("expanded to bfloat16 in the call"), std::string::npos) << text.left;
    EXPECT_NE(text.right.find("prepared as few_tokens"), std::string::npos) << text.right;
  }
}

// What is planned for is what is multiplied: tokens of a batch that lie apart, or whose outputs do,
// are not one matrix.
TEST(PlanDecodeQuantized, BatchesThatShareTheirWeights) {
  const PreparedOperand weights =
      prepared(PreparedForm::few_tokens, Scheme::mxfp4, {1, 2048, 1024});
  const Buffer x = plain(DType::bfloat16, {8, 16, 1024});
  const Buffer out = plain(DType::bfloat16, {8, 16, 2048});
  Buffer x_apart = x, out_apart = out;
  x_apart.batch_stride *= 2;
  out_apart.batch_stride *= 2;
  const auto tokens = [&](const GemmOperand& left, const Buffer& result) {
    const DecodeProblem few({left, weights, result, automatic});
    EXPECT_EQ(few.batch * few.tokens, 128);
    return few.tokens;
  };
  EXPECT_EQ(tokens(x, out), 128);
  EXPECT_EQ(tokens(x_apart, out), 16);
  EXPECT_EQ(tokens(x, out_apart), 16);
  Buffer last = plain(DType::bfloat16, {128, 1, 1024});  // of each of 128 sequences
  last.batch_stride *= 16;
  EXPECT_EQ(tokens(with_strides(last), plain(DType::bfloat16, {128, 1, 2048})), 128);
  const BlockScaled codes = quantized(Scheme::mxfp8_e4m3, {8, 16, 1024});
  EXPECT_EQ(tokens(codes, out), 128);
  EXPECT_EQ(tokens(codes, out_apart), 16);
}

TEST(PlanDecodeQuantized, RowsExpandedAheadAreTakenAsTheyAre) {
  const GemmProblem ahead{prepared(PreparedForm::expanded, Scheme::nvfp4, {1, 16, 1024}),
                          prepared(PreparedForm::few_tokens, Scheme::mxfp4, {1, 2048, 1024}),
                          plain(DType::bfloat16, {1, 16, 2048}), automatic};
  const CudaGemmPlan plan = plan_gemm_cuda(ahead, hopper);
  EXPECT_EQ(plan.path, CudaGemmPath::few_tokens);
  EXPECT_TRUE(plan.left.is_prepared && !plan.left.expands);
  EXPECT_EQ(plan.workspace_bytes, 0u);
}

// Folded, E4M3, with reordered weights of MXFP4: on FP8 tensor cores, with the rows in the order of
// the weights in the working memory.
TEST(PlanDecodeQuantized, FoldedRowsMeetDecodedWeights) {
  constexpr auto folded = GemmPrecision::folded;
  for (const Scheme left : {Scheme::mxfp8_e4m3, Scheme::mxfp6_e2m3}) {
    for (const std::int64_t rows : {1, 16, 64, 2048}) {
      const GemmProblem problem = few_rows(rows, left, folded);
      const CudaGemmPlan plan = plan_gemm_cuda(problem, hopper);
      EXPECT_EQ(plan.path, CudaGemmPath::few_folded);
      EXPECT_TRUE(plan.left.folds && plan.right.is_prepared && !plan.right.folds);
      EXPECT_EQ(plan.few.tokens, folded_size(rows));
      EXPECT_GE(plan.few.stages, 2);
      EXPECT_GE(plan.workspace_bytes, plan.interleaved + static_cast<std::size_t>(rows) * 1024);
      EXPECT_EQ(explain(plan, problem, hopper).path, std::string("few tokens, folded"));
    }
    EXPECT_EQ(path_of(few_rows(2049, left, folded)), CudaGemmPath::folded);
    EXPECT_EQ(path_of(few_rows(2049, left, folded, DType::bfloat16, false)),
              CudaGemmPath::few_folded);
  }
  // E5M2, and weights of eight bits, are folded.
  EXPECT_EQ(path_of(few_rows(16, Scheme::mxfp4, folded)), CudaGemmPath::folded);
  const GemmProblem wide{quantized(Scheme::mxfp8_e4m3, {1, 16, 1024}),
                         prepared(PreparedForm::few_tokens, Scheme::mxfp8_e4m3, {1, 2048, 1024}),
                         plain(DType::bfloat16, {1, 16, 2048}), folded};
  EXPECT_EQ(path_of(wide), CudaGemmPath::folded);
  const GemmProblem ahead{prepared(PreparedForm::folded, Scheme::mxfp8_e4m3, {1, 16, 1024}, false),
                          prepared(PreparedForm::few_tokens, Scheme::mxfp4, {1, 2048, 1024}, false),
                          plain(DType::bfloat16, {1, 16, 2048}), folded};
  EXPECT_EQ(path_of(ahead), CudaGemmPath::few_folded);
  EXPECT_FALSE(plan_gemm_cuda(ahead, hopper).left.folds);
}

}  // namespace
}  // namespace mxkern
