// tests/plan/hopper/overlap_test.cc: which rows of a product are made ready while it is under way.
#include <gtest/gtest.h>

#include <string>

#include "mxkern/prepare_operand.h"
#include "plan/gemm_cuda.h"
#include "tests/support/gemm_case.h"

namespace mxkern {
namespace {

using namespace test;
using Case = GemmCase;

// Rows of one operand that no first tile needs are made ready by the product, where no question has
// to be asked about them first.
TEST(PlanLateRowsTest, RowsBehindTheFirstTilesAreLate) {
  const Case wide{.precision = GemmPrecision::exact, .shape = {1, 8192, 4096}, .n = 8192};
  const auto plan_of = [](const Case& c) { return plan_gemm_cuda(c.problem(), hopper); };
  const auto has_late_rows = [&](const Case& c) {
    const CudaGemmPlan plan = plan_of(c);
    return plan.left.first_rows > 0 || plan.right.first_rows > 0;
  };
  const CudaGemmPlan plan = plan_of(wide);
  EXPECT_TRUE(plan.left.expands && plan.right.expands && !plan.left.decodes);
  EXPECT_EQ(plan.left.first_rows, 4 * 256);  // 66 clusters: a band of tiles
  EXPECT_EQ(plan.right.first_rows, 0);
  EXPECT_GE(plan.left.progress, plan.left.expanded + std::size_t{8192} * 4096 * 2);
  EXPECT_LE(plan.left.progress + 4 * (1 + 8192 / 64), plan.right.expanded);
  const GemmProblem problem = wide.problem();
  EXPECT_NE(explain(plan, problem, hopper).left.find("from row 1024 on"), std::string::npos);
  Case other = wide;
  other.shape.rows = 4096;
  other.n = 14336;
  EXPECT_EQ(plan_of(other).right.first_rows, 5 * 256);  // 16 tiles down
  EXPECT_EQ(plan_of(other).left.first_rows, 0);
  other = wide;
  other.left = Scheme::nvfp4;
  EXPECT_TRUE(has_late_rows(other));  // the right one
  other.right = Scheme::mxfp4;
  EXPECT_FALSE(has_late_rows(other));
  other = wide;
  other.n = 4096;
  const GemmProblem ahead{quantized(other.left, other.shape),
                          prepared(PreparedForm::expanded, other.right, other.right_shape()),
                          other.result(), other.precision};
  EXPECT_EQ(plan_gemm_cuda(ahead, hopper).left.first_rows, 4 * 256) << "two clusters wait";
  EXPECT_TRUE(plan_of(other).left.decodes && plan_of(other).right.first_rows > 0);
  other.shape.rows = 16384;
  EXPECT_EQ(plan_of(other).left.first_rows, 6 * 256) << "no cluster waits where turns are many";
  other.shape.rows = 32768;
  other.n = 2048;  // rows of the left operand would be needed faster than they are made
  EXPECT_FALSE(has_late_rows(other));
  other = wide;
  other.shape = {1, 4096, 14336};
  other.n = 2048;
  EXPECT_TRUE(plan_of(other).left.decodes && !has_late_rows(other)) << "two turns";
  for (const Shape shape :
       {Shape{1, 8192, 4096 + 32}, {1, 8192, 2048}, {1, 1024, 4096}, {2, 8192, 4096}}) {
    other = wide;
    other.n = 4096;
    other.shape = shape;
    EXPECT_FALSE(has_late_rows(other)) << shape.rows << " " << shape.columns;
  }
}

TEST(PlanLateRowsTest, BatchesThatAreMultipliedAsOneMatrixHaveNone) {
  const Case wide{.precision = GemmPrecision::exact, .shape = {2, 4096, 4096}, .n = 8192};
  const GemmProblem problem{quantized(wide.left, wide.shape),
                            quantized(wide.right, {1, 8192, 4096}), wide.result(), wide.precision};
  ASSERT_EQ(multiplied_shape(problem), (Shape{1, 8192, 8192}));
  const CudaGemmPlan plan = plan_gemm_cuda(problem, hopper);
  EXPECT_EQ(plan.path, CudaGemmPath::exact);
  EXPECT_EQ(plan.left.first_rows, 0);
  EXPECT_EQ(plan.right.first_rows, 0);
}

// Otherwise the tiles that are divided along K would have other rows than where all are ready.
TEST(PlanLateRowsTest, LeftRowsAreLateInWholeTilesAlone) {
  for (const auto& [m, first] :
       {std::pair{540, 0}, {600, 512}, {784, 0}, {785, 512}, {1568, 0}, {1569, 1024}}) {
    const Case c{.precision = GemmPrecision::exact, .shape = {1, m, 12288}, .n = 28672};
    const GemmProblem weights_ahead{quantized(c.left, c.shape),
                                    prepared(PreparedForm::expanded, c.right, c.right_shape()),
                                    c.result(), c.precision};
    EXPECT_EQ(plan_gemm_cuda(weights_ahead, hopper).left.first_rows, first) << m;
  }
}

TEST(PlanLateRowsTest, LeftRowsAreFoldedLateInLargeTiles) {
  const Case wide{.precision = GemmPrecision::folded, .shape = {1, 8192, 4096}, .n = 4096};
  const auto first_rows = [](const Case& c) {
    const GemmProblem weights_ahead{quantized(c.left, c.shape),
                                    prepared(PreparedForm::folded, c.right, c.right_shape()),
                                    c.result(), c.precision};
    const CudaGemmPlan plan = plan_gemm_cuda(weights_ahead, hopper);
    EXPECT_TRUE(plan.left.folds && !plan.right.folds);
    EXPECT_EQ(plan.right.first_rows, 0);
    return plan.left.first_rows;
  };
  EXPECT_EQ(first_rows(wide), 4 * 256);  // 66 clusters: 4 x 16 tiles, and two that wait
  const GemmProblem problem = wide.problem();
  const CudaGemmPlan plan = plan_gemm_cuda(problem, hopper);
  EXPECT_GE(plan.left.progress, plan.left.folded + std::size_t{8192} * 4096);
  EXPECT_LE(plan.left.progress + 4 * (1 + 8192 / 64), plan.right.folded);
  EXPECT_NE(explain(plan, problem, hopper).left.find("from row 1024 on"), std::string::npos);
  Case automatic = wide;
  automatic.precision = GemmPrecision::automatic;
  EXPECT_EQ(first_rows(automatic), 0) << "finding their spreads takes as long as late rows save";
  automatic.shape = {1, 4096, 14336};
  EXPECT_EQ(first_rows(automatic), 4 * 256) << "long rows";
  const GemmProblem both_ahead{prepared(PreparedForm::folded, wide.left, wide.shape),
                               prepared(PreparedForm::folded, wide.right, wide.right_shape()),
                               wide.result(), GemmPrecision::folded};
  EXPECT_EQ(plan_gemm_cuda(both_ahead, hopper).left.first_rows, 0);
  Case other = wide;
  other.right = Scheme::mxfp6_e2m3;  // becomes E4M3
  EXPECT_EQ(first_rows(other), 4 * 256);
  for (const Scheme right : {Scheme::mxfp8_e5m2, Scheme::mxfp4}) {
    other.right = right;
    EXPECT_EQ(first_rows(other), 0) << name_of(right);
  }
  for (const Scheme left : {Scheme::mxfp8_e5m2, Scheme::mxfp6_e2m3}) {
    other = wide;
    other.left = left;
    EXPECT_EQ(first_rows(other), 0) << name_of(left);
  }
  struct Size {
    std::int64_t m, n, k;
    const char* reason;
  };
  for (const Size& size : {Size{4096, 4096, 4096, "4 of 16 rows of tiles are ahead"},
                           {3072, 4096, 4096, "4 of 12"},
                           {2048, 4096, 4096, "4 of 8, in two turns"},
                           {1800, 4096, 4096, "of which the last one is not full"},
                           {2048, 4096, 14336, "half of the rows, which are long"}}) {
    other = wide;
    other.shape = {1, size.m, size.k};
    other.n = size.n;
    EXPECT_EQ(first_rows(other), 4 * 256) << size.reason;
  }
  other.shape = {1, 16384, 14336};
  other.n = 4096;
  EXPECT_EQ(first_rows(other), 6 * 256) << "no cluster waits where there are many turns";
  for (const Size& size : {Size{2048, 6144, 4096, "the first tiles need 4 of 8 rows"},
                           {1024, 4096, 14336, "they need all"},
                           {8192, 14336, 4096, "folding is a small part"},
                           {8192, 57344, 8192, "folding is a smaller part"},
                           {8192, 4096, 2048, "short rows"},
                           {8192, 4096, 4096 + 32, "scales not in words"},
                           {std::int64_t{1} << 19, 4096, 8192, "2^32 codes"}}) {
    other = wide;
    other.shape = {1, size.m, size.k};
    other.n = size.n;
    EXPECT_EQ(first_rows(other), 0) << size.reason;
  }
}

// Where the first of two turns takes half of the rows, and these are long.
TEST(PlanLateRowsTest, ColumnsOfFirstRowsAreFoldedLateInTwoTurns) {
  struct Size {
    std::int64_t m, n, k, rows, columns;
    const char* reason;
  };
  for (const Size& size : {Size{2048, 4096, 14336, 1024, 4096, "a third of the columns are ahead"},
                           {2048, 4096, 28672, 1024, 8192, "in whole stretches"},
                           {2048, 4096, 10368, 1024, 2048, "of which the last one is shorter"},
                           {2040, 4096, 12288, 1024, 4096, "a tile that is not full"},
                           {4096, 4096, 14336, 1024, 0, "four turns"},
                           {2048, 4096, 8192, 1024, 0, "short rows"},
                           {2048, 4096, 4096, 1024, 0, "shorter ones"},
                           {2048, 6144, 4096, 0, 0, "no row is late"}}) {
    const Case c{.precision = GemmPrecision::folded, .shape = {1, size.m, size.k}, .n = size.n};
    const GemmRightOperand ahead = prepared(PreparedForm::folded, c.right, c.right_shape());
    const auto plan_of = [&](GemmPrecision precision) {
      return plan_gemm_cuda({quantized(c.left, c.shape), ahead, c.result(), precision}, hopper);
    };
    const CudaGemmPlan plan = plan_of(GemmPrecision::folded);
    EXPECT_EQ(plan.left.first_rows, size.rows) << size.reason;
    EXPECT_EQ(plan.left.first_columns, size.columns) << size.reason;
    EXPECT_EQ(plan_of(GemmPrecision::automatic).left.first_columns, 0) << "spreads are asked about";
    if (size.columns == 0) continue;
    // A counter for each tile of 64 rows, and for each stretch of those of the first rows.
    const std::int64_t stretches = (size.k - size.columns + 2047) / 2048;
    const std::int64_t counters = 1 + size.m / 64 + size.rows / 64 * stretches;
    EXPECT_LE(plan.left.progress + static_cast<std::size_t>(counters) * 4, plan.workspace_bytes);
    const GemmProblem problem{quantized(c.left, c.shape), ahead, c.result(), c.precision};
    EXPECT_NE(explain(plan, problem, hopper)
                  .left.find("the first rows from column " + std::to_string(size.columns) + " on"),
              std::string::npos);
  }
  // Right rows are needed too fast.
  const Case both{.precision = GemmPrecision::folded, .shape = {1, 2048, 14336}, .n = 4096};
  const CudaGemmPlan plan = plan_gemm_cuda(both.problem(), hopper);
  EXPECT_GT(plan.right.first_rows, 0);
  EXPECT_EQ(plan.right.first_columns + plan.left.first_columns, 0);
}

TEST(PlanLateRowsTest, RightRowsAreFoldedLateWhereThereAreAsMany) {
  struct Size {
    std::int64_t m, n, k, right, left;
    const char* reason;
  };
  for (const Size& size :
       {Size{4096, 4096, 4096, 7 * 256, 0, "6 of 16 columns of tiles, and one more"},
        {8192, 4096, 4096, 0, 4 * 256, "more rows on the left"},
        {8192, 4352, 4096 + 32, 0, 0, "scales not in words"},
        {2048, 6144, 4096, 10 * 256, 0, "8 of 24, and two more of short rows"},
        {2048, 4096, 4096, 10 * 256, 0, "8 of 16, and two more"},
        {2048, 28672, 4096, 10 * 256, 0, "8 of 112, and two more"},
        {2048, 57344, 8192, 10 * 256, 0, "9 of 224, and one more"},
        {1024, 8192, 8192, 25 * 256, 0, "16 of 32, what a turn does not make of 16, and two more"},
        {1024, 28672, 4096, 60 * 256, 0, "16 of 112, what six turns do not make, and two more"},
        {1024, 4096, 14336, 0, 0, "the first tiles need all"},
        {2048, 4096, 14336, 9 * 256, 0, "8 of 16, and one more"},
        {2816, 3840, 4096, 0, 0, "few rows"},
        {4096, std::int64_t{1} << 19, 8192, 0, 0, "2^32 codes"}}) {
    Case both{.precision = GemmPrecision::folded, .shape = {1, size.m, size.k}, .n = size.n};
    const CudaGemmPlan plan = plan_gemm_cuda(both.problem(), hopper);
    EXPECT_TRUE(plan.left.folds && plan.right.folds);
    EXPECT_EQ(plan.right.first_rows, size.right) << size.reason;
    EXPECT_EQ(plan.left.first_rows, size.left) << size.reason;
    both.precision = GemmPrecision::automatic;
    const CudaGemmPlan behind_a_gate = plan_gemm_cuda(both.problem(), hopper);
    const bool is_long = size.k >= 10240;
    EXPECT_EQ(behind_a_gate.right.first_rows, is_long ? size.right : 0) << size.reason;
    EXPECT_EQ(behind_a_gate.left.first_rows, is_long ? size.left : 0) << size.reason;
  }
  // The left operand is ready, or of another scheme: then rows are late however few they are.
  Case other{.precision = GemmPrecision::folded, .shape = {1, 8192, 4096}, .n = 4096};
  const GemmProblem left_ahead{prepared(PreparedForm::folded, other.left, other.shape),
                               quantized(other.right, other.right_shape()), other.result(),
                               GemmPrecision::folded};
  const CudaGemmPlan plan = plan_gemm_cuda(left_ahead, hopper);
  EXPECT_EQ(plan.right.first_rows, 7 * 256);
  EXPECT_GE(plan.right.progress, plan.right.folded + std::size_t{4096} * 4096);
  EXPECT_LE(plan.right.progress + 4 * (1 + 4096 / 64), plan.workspace_bytes);
  EXPECT_NE(explain(plan, left_ahead, hopper).right.find("from row 1792 on"), std::string::npos);
  other.left = Scheme::mxfp6_e2m3;  // becomes E4M3
  EXPECT_EQ(plan_gemm_cuda(other.problem(), hopper).right.first_rows, 7 * 256);
  for (const Scheme left : {Scheme::mxfp8_e5m2, Scheme::mxfp4}) {
    other.left = left;
    EXPECT_EQ(plan_gemm_cuda(other.problem(), hopper).right.first_rows, 0) << name_of(left);
  }
}

}  // namespace
}  // namespace mxkern
