// tests/plan_decoded_test.cc: which products decode their left operand while they multiply.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>

#include "cuda/fold.h"
#include "mxkern/prepare_operand.h"
#include "plan_gemm_cuda.h"
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
  for (const auto& [m, n, is_decoded] : {std::tuple{2048, 4096, true},
                                         {2048, 8192, false},
                                         {3072, 8192, true},
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
  const CudaGemmProblem ahead{prepared(PreparedForm::expanded, wide.left, wide.shape),
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
    const CudaGemmProblem problem{left, quantized(Scheme::mxfp8_e4m3, {right_batch, 4096, 2048}),
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
    const CudaGemmProblem problem{quantized(Scheme::mxfp8_e4m3, shape),
                                  quantized(Scheme::mxfp8_e4m3, {1, 8192, 4096}),
                                  plain(DType::bfloat16, {2, rows, 8192}), GemmPrecision::exact};
    const CudaGemmPlan plan = plan_gemm_cuda(problem, hopper);
    EXPECT_EQ(plan.left.decodes, is_decoded) << rows;
    EXPECT_EQ(plan.left.expands, !is_decoded) << rows;
    EXPECT_EQ(plan.right.first_rows, 0) << rows;
  }
}

}  // namespace
}  // namespace mxkern
