// tests/plan/hopper/upcast_test.cc: which products decode an operand while they multiply.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>

#include "cuda/operands/fold.h"
#include "mxkern/prepare_operand.h"
#include "plan/gemm_cuda.h"
#include "tests/support/gemm_case.h"

namespace mxkern {
namespace {

using namespace test;
using Case = GemmCase;

// Where a product has the wide tile of bfloat16, codes of the left operand are decoded in
// registers.
TEST(PlanDecodedTest, LeftCodesAreDecoded) {
  const auto plan_of = [](const Case& c, const char* architecture = "sm_90") {
    return plan_gemm_cuda(c.problem(), capabilities_of(architecture));
  };
  const Case wide{.precision = GemmPrecision::exact, .shape = {1, 4096, 2048}, .n = 4096};
  CudaGemmPlan plan = plan_of(wide);
  EXPECT_TRUE(plan.left.decodes && !plan.left.expands);
  EXPECT_TRUE(!plan.right.decodes && plan.right.expands);
  EXPECT_EQ(plan.right.expanded, 0U) << "codes and scales are taken as they lie";
  const GemmExplanation text = explain(plan, wide.problem(), hopper);
  EXPECT_NE(text.left.find("decoded in registers"), std::string::npos) << text.left;
  EXPECT_EQ(text.left.find("as it lies"), std::string::npos) << text.left;
  Case other = wide;
  other.precision = GemmPrecision::automatic;
  other.shape = {2, 2048, 2048};  // in kernels of their own
  plan = plan_of(other);
  EXPECT_TRUE(plan.left.decodes && plan.left.folds && !plan.left.expands);
  const cuda::RowScaledLayout folded = cuda::folded_layout(other.shape);
  EXPECT_LE(plan.left.folded + static_cast<std::size_t>(folded.bytes), plan.right.expanded);
  other = wide;
  other.precision = GemmPrecision::folded;
  EXPECT_FALSE(plan_of(other).left.decodes);
  other = wide;
  other.shape.rows = other.n = 128;  // too few tiles
  EXPECT_FALSE(plan_of(other).left.decodes);
  other = wide;
  other.n = 16384;  // many turns: expanding takes less time
  EXPECT_FALSE(plan_of(other).left.decodes);
  // Rows of the right operand that are late leave decoding the more time the more left rows there
  // are.
  for (const auto& [m, n, is_decoded] : {std::tuple{2048, 2048, true},
                                         {2560, 4096, false},
                                         {3072, 4096, true},
                                         {4096, 8192, true},
                                         {4096, 10240, false}}) {
    other = wide;
    other.shape = {1, m, 4096};
    other.n = n;
    plan = plan_of(other);
    EXPECT_EQ(plan.left.decodes, is_decoded) << m << " x " << n;
    EXPECT_NE(plan.left.decodes, plan.left.expands);
    EXPECT_EQ(plan.right.first_rows > 0, m * n > 2048 * 4096) << m << " x " << n;
  }
  other = wide;
  other.shape.columns = 2048 + 32;  // scales that do not come in fours
  EXPECT_FALSE(plan_of(other).left.decodes);
  other = wide;
  other.shape.columns = 4104;  // rows that the copy engine cannot load
  EXPECT_FALSE(plan_of(other).left.decodes);
  for (const Scheme scheme : {Scheme::mxfp8_e5m2, Scheme::mxfp4, Scheme::nvfp4}) {
    other = wide;
    other.left = scheme;
    EXPECT_FALSE(plan_of(other).left.decodes);
  }
  EXPECT_FALSE(plan_of(wide, "sm_80").left.decodes);
  // What was expanded ahead is taken.
  const GemmProblem ahead{prepared(PreparedForm::expanded, wide.left, wide.shape),
                          quantized(wide.right, wide.right_shape()), wide.result(),
                          GemmPrecision::exact};
  plan = plan_gemm_cuda(ahead, hopper);
  EXPECT_TRUE(plan.left.is_prepared && !plan.left.decodes);
}

// Where all matrices are multiplied as one, swizzled scales have to be those of one matrix.
TEST(PlanDecodedTest, MatricesOfWholeTilesOfScalesAreDecodedAsOne) {
  const auto decodes = [](std::int64_t rows, ScaleLayout layout, std::int64_t right_batch) {
    BlockScaled left = quantized(Scheme::mxfp8_e4m3, {2, rows, 2048});
    left.scale_layout = layout;
    const GemmProblem problem{left, quantized(Scheme::mxfp4, {right_batch, 4096, 2048}),
                              plain(DType::bfloat16, {2, rows, 4096}), GemmPrecision::exact};
    return plan_gemm_cuda(problem, hopper).left.decodes;
  };
  for (const std::int64_t rows : {1000, 1024}) {
    EXPECT_TRUE(decodes(rows, ScaleLayout::row_major, 1)) << rows;
    EXPECT_TRUE(decodes(rows, ScaleLayout::swizzled, 2)) << rows;
    EXPECT_EQ(decodes(rows, ScaleLayout::swizzled, 1), rows == 1024);
  }
}

// A batch has no late rows, so that they do not count for it, though its matrices are multiplied as
// one.
TEST(PlanDecodedTest, NoRowOfABatchIsLate) {
  for (const auto& [rows, is_decoded] : {std::pair{1024, true}, {2048, false}}) {
    const Shape shape{2, rows, 4096};
    const GemmProblem problem{quantized(Scheme::mxfp8_e4m3, shape),
                              quantized(Scheme::mxfp4, {1, 8192, 4096}),
                              plain(DType::bfloat16, {2, rows, 8192}), GemmPrecision::exact};
    const CudaGemmPlan plan = plan_gemm_cuda(problem, hopper);
    EXPECT_EQ(plan.left.decodes, is_decoded) << rows;
    EXPECT_EQ(plan.left.expands, !is_decoded) << rows;
    EXPECT_EQ(plan.right.first_rows, 0) << rows;
  }
}

// Beside right codes that are decoded, left rows that no first tile needs.
TEST(PlanDecodedTest, LeftRowsAreLateBesideDecodedRightCodes) {
  struct Size {
    std::int64_t m, n, k, first;
    const char* reason;
  };
  for (const Size& size : {Size{2048, 4096, 4096, 1024, "two turns, two clusters left over"},
                           {2048, 4096, 14336, 1024, "and long rows"},
                           {2048, 8192, 8192, 1024, "four turns"},
                           {2200, 5112, 4224, 1024, "no whole tiles"},
                           {1024, 8192, 8192, 0, "few rows"},
                           {1024, 4096, 4096, 0, "one turn"},
                           {2048, 4096, 2048, 0, "short rows"},
                           {2048, 57344, 8192, 0, "no cluster is left over"}}) {
    const Case c{.precision = GemmPrecision::exact, .shape = {1, size.m, size.k}, .n = size.n};
    const CudaGemmPlan plan = plan_gemm_cuda(c.problem(), hopper);
    EXPECT_TRUE(plan.right.decodes && plan.right.first_rows == 0) << size.reason;
    EXPECT_EQ(plan.left.first_rows, size.first) << size.reason;
    if (size.first == 0) continue;
    EXPECT_NE(explain(plan, c.problem(), hopper).left.find("from row 1024 on"), std::string::npos);
  }
  Case other{.precision = GemmPrecision::exact, .shape = {1, 2048, 4096}, .n = 4096};
  other.left = Scheme::mxfp4;
  EXPECT_TRUE(plan_gemm_cuda(other.problem(), hopper).right.decodes);
  EXPECT_EQ(plan_gemm_cuda(other.problem(), hopper).left.first_rows, 0) << "no code for it";
}

// A product of few left rows decodes the right operand's codes, which take longer to expand.
TEST(PlanDecodedTest, RightCodesAreDecodedWhereTheyAreMore) {
  const Case wide{.precision = GemmPrecision::exact, .shape = {1, 2048, 4096}, .n = 4096};
  const auto plan_of = [](const Case& c) { return plan_gemm_cuda(c.problem(), hopper); };
  const CudaGemmPlan plan = plan_of(wide);
  EXPECT_TRUE(plan.right.decodes && !plan.right.expands);
  EXPECT_TRUE(plan.left.expands && !plan.left.decodes);
  EXPECT_LT(plan.workspace_bytes, std::size_t{4096} * 4096 * 2) << "the right operand's elements";
  const GemmExplanation text = explain(plan, wide.problem(), hopper);
  EXPECT_NE(text.right.find("decoded in registers"), std::string::npos) << text.right;
  EXPECT_NE(text.kernel.find("computed as its transpose"), std::string::npos) << text.kernel;
  struct Size {
    std::int64_t m, n, k;
    bool is_decoded;
    const char* reason;
  };
  for (const Size& size : {Size{1024, 4096, 4096, true, "one turn"},
                           {2048, 6144, 4096, true, "three turns"},
                           {2048, 8192, 8192, true, "four, and right rows would be late"},
                           {2048, 14336, 4096, true, "seven"},
                           {640, 4096, 4096, true, "other tiles would take little less"},
                           {256, 4096, 4096, false, "they would take much less"},
                           {4096, 4096, 4096, false, "as many left rows"},
                           {2048, 28672, 4096, false, "many turns"},
                           {8192, 4096, 4096, false, "left rows are more"},
                           {2048, 57344, 8192, true, "and late rows would have nobody else"},
                           {1536, 14336, 4096, true, "its own tiles are not divided"},
                           {768, 6144, 4096, false, "others than its tiles are divided"}}) {
    Case other = wide;
    other.shape = {1, size.m, size.k};
    other.n = size.n;
    EXPECT_EQ(plan_of(other).right.decodes, size.is_decoded)
        << size.m << " x " << size.n << " x " << size.k << ": " << size.reason;
  }
  for (const Scheme scheme : {Scheme::mxfp8_e5m2, Scheme::mxfp4, Scheme::nvfp4}) {
    Case other = wide;
    other.right = scheme;
    EXPECT_FALSE(plan_of(other).right.decodes);
    other = wide;
    other.left = scheme;  // is expanded, whatever it is
    EXPECT_TRUE(plan_of(other).right.decodes);
  }
  Case other = wide;
  other.precision = GemmPrecision::automatic;
  EXPECT_FALSE(plan_of(other).right.decodes);
  other.out = DType::float32;  // exact
  EXPECT_TRUE(plan_of(other).right.decodes);
  other.precision = GemmPrecision::folded;
  EXPECT_FALSE(plan_of(other).right.decodes);
  // What is in the output is added, or its rows start anywhere.
  GemmProblem problem = wide.problem();
  problem.adds_output = true;
  EXPECT_TRUE(plan_gemm_cuda(problem, hopper).left.decodes);
  EXPECT_FALSE(plan_gemm_cuda(problem, hopper).right.decodes);
  other = wide;
  other.n -= 3;
  EXPECT_FALSE(plan_of(other).right.decodes);
  // Plain operands of one bfloat16 an element.
  const auto decodes_beside = [&](const GemmOperand& left, const GemmRightOperand& right) {
    const GemmProblem problem{left, right, wide.result(), GemmPrecision::exact};
    return plan_gemm_cuda(problem, hopper).right.decodes;
  };
  const BlockScaled right = quantized(wide.right, wide.right_shape());
  EXPECT_TRUE(decodes_beside(plain(DType::bfloat16, wide.shape), right));
  EXPECT_FALSE(decodes_beside(plain(DType::float16, wide.shape), right));
  EXPECT_TRUE(decodes_beside(prepared(PreparedForm::expanded, wide.left, wide.shape), right));
  // What was expanded ahead is taken.
  const BlockScaled left = quantized(wide.left, wide.shape);
  EXPECT_FALSE(
      decodes_beside(left, prepared(PreparedForm::expanded, wide.right, wide.right_shape())));
}

}  // namespace
}  // namespace mxkern
