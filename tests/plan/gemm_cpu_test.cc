// tests/plan/gemm_cpu_test.cc: plans are pure, cover the output, and stay within their memory.
#include "plan/gemm_cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "mxkern/core/math.h"

namespace mxkern {
namespace {

CpuGemmCapabilities machine(std::initializer_list<GemmUnit> units, int threads) {
  CpuGemmCapabilities capabilities;
  for (const GemmUnit unit : units) capabilities.has[static_cast<int>(unit)] = true;
  capabilities.threads = threads;
  return capabilities;
}

CpuGemmProblem problem(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch = 1) {
  CpuGemmProblem result;
  result.batch = batch;
  result.m = m;
  result.n = n;
  result.k = k;
  return result;
}

CpuGemmProblem plain_problem(DType dtype) {
  CpuGemmProblem result = problem(64, 64, 64);
  result.left_is_plain = true;
  result.left_dtype = dtype;
  return result;
}

TEST(PlanGemmTest, TakesTheFastestUnit) {
  const CpuGemmProblem quantized = problem(64, 64, 64);
  EXPECT_EQ(plan_gemm_cpu(quantized, machine({}, 1)).unit, GemmUnit::baseline);
  EXPECT_EQ(plan_gemm_cpu(quantized, machine({GemmUnit::avx2}, 1)).unit, GemmUnit::avx2);
  const auto avx512 = {GemmUnit::avx2, GemmUnit::avx512};
  EXPECT_EQ(plan_gemm_cpu(quantized, machine(avx512, 1)).unit, GemmUnit::avx512);
  const auto bf16 = {GemmUnit::avx2, GemmUnit::avx512, GemmUnit::avx512_bf16};
  EXPECT_EQ(plan_gemm_cpu(quantized, machine(bf16, 1)).unit, GemmUnit::avx512_bf16);
  const auto amx = {GemmUnit::avx2, GemmUnit::avx512, GemmUnit::avx512_bf16, GemmUnit::amx_bf16};
  EXPECT_EQ(plan_gemm_cpu(quantized, machine(amx, 1)).unit, GemmUnit::amx_bf16);
}

TEST(PlanGemmTest, FewRowsAreMultipliedByRows) {
  const auto rows_by = [](const CpuGemmCapabilities& capabilities, std::int64_t m) {
    return plan_gemm_cpu(problem(m, 4096, 4096), capabilities).unit;
  };
  const auto avx2 = {GemmUnit::avx2, GemmUnit::avx2_few_rows};
  const auto amx = {GemmUnit::avx2_few_rows, GemmUnit::avx512_few_rows, GemmUnit::amx_bf16};
  for (const std::int64_t m : {1, 4}) {
    EXPECT_EQ(rows_by(machine({}, 1), m), GemmUnit::baseline_few_rows);
    EXPECT_EQ(rows_by(machine(avx2, 1), m), GemmUnit::avx2_few_rows);
    EXPECT_EQ(rows_by(machine(amx, 1), 2 * m), GemmUnit::avx512_few_rows);
  }
  EXPECT_EQ(rows_by(machine({}, 1), 5), GemmUnit::baseline);
  EXPECT_EQ(rows_by(machine(avx2, 1), 5), GemmUnit::avx2);
  EXPECT_EQ(rows_by(machine(amx, 1), 9), GemmUnit::amx_bf16);
}

TEST(PlanGemmTest, PanelsHaveUnitsOfTheirOwn) {
  const auto unit_for = [](const CpuGemmCapabilities& capabilities, std::int64_t m, DType dtype) {
    CpuGemmProblem panels = problem(m, 4096, 4096);
    panels.left_is_plain = true;
    panels.left_dtype = dtype;
    panels.right_is_panels = true;
    return plan_gemm_cpu(panels, capabilities).unit;
  };
  const auto avx2 = machine({GemmUnit::avx2, GemmUnit::avx2_few_rows, GemmUnit::avx2_panels}, 1);
  const auto bf16 =
      machine({GemmUnit::avx2, GemmUnit::avx512, GemmUnit::avx512_bf16, GemmUnit::avx2_panels,
               GemmUnit::avx512_panels, GemmUnit::avx512_bf16_panels},
              1);
  CpuGemmCapabilities amx = bf16;
  amx.has[static_cast<int>(GemmUnit::amx_bf16)] = true;
  for (const std::int64_t m : {1, 16}) {
    EXPECT_EQ(unit_for(machine({}, 1), m, DType::bfloat16), GemmUnit::baseline) << m;
    EXPECT_EQ(unit_for(avx2, m, DType::bfloat16), GemmUnit::avx2_panels) << m;
    for (const CpuGemmCapabilities& capabilities : {bf16, amx}) {
      EXPECT_EQ(unit_for(capabilities, m, DType::bfloat16), GemmUnit::avx512_bf16_panels) << m;
      EXPECT_EQ(unit_for(capabilities, m, DType::float16), GemmUnit::avx512_bf16_panels) << m;
      EXPECT_EQ(unit_for(capabilities, m, DType::float32), GemmUnit::avx512_panels) << m;
    }
  }
  EXPECT_EQ(unit_for(avx2, 17, DType::float32), GemmUnit::avx2);
  EXPECT_EQ(unit_for(bf16, 48, DType::bfloat16), GemmUnit::avx512_bf16_panels);
  EXPECT_EQ(unit_for(bf16, 49, DType::bfloat16), GemmUnit::avx512_bf16);
  EXPECT_EQ(unit_for(bf16, 49, DType::float32), GemmUnit::avx512);
  EXPECT_EQ(unit_for(amx, 17, DType::bfloat16), GemmUnit::amx_bf16);
  EXPECT_EQ(unit_for(amx, 17, DType::float32), GemmUnit::amx_bf16);
}

TEST(PlanGemmTest, FewRowsArePackedWithoutThoseThatAreNotThere) {
  const auto tile_of = [](GemmUnit unit, std::int64_t m) {
    return plan_gemm_cpu_with(unit, problem(m, 512, 256), 1).left_tile;
  };
  const std::pair<std::int64_t, int> tiles[] = {{1, 1}, {2, 2}, {3, 4}, {4, 4}, {5, 8}, {9, 8}};
  for (const auto& [m, tile] : tiles) {
    EXPECT_EQ(tile_of(GemmUnit::avx512_few_rows, m), tile) << m;
    EXPECT_EQ(tile_of(GemmUnit::avx2_few_rows, m), std::min(tile, 4)) << m;
    EXPECT_EQ(tile_of(GemmUnit::amx_bf16, m), 32) << m;
  }
}

TEST(PlanGemmTest, DotProductsAreSkippedWhereTheyAreSlow) {
  CpuGemmCapabilities capabilities =
      machine({GemmUnit::avx2, GemmUnit::avx512, GemmUnit::avx512_bf16}, 1);
  capabilities.has_fast_bf16_dot = false;
  EXPECT_EQ(plan_gemm_cpu(problem(64, 64, 64), capabilities).unit, GemmUnit::avx512);
}

TEST(PlanGemmTest, APlainOperandTakesAsManyPartsAsItsSignificandNeeds) {
  const auto amx = machine({GemmUnit::avx512, GemmUnit::avx512_bf16, GemmUnit::amx_bf16}, 1);
  EXPECT_EQ(plan_gemm_cpu(plain_problem(DType::bfloat16), amx).parts, 1);
  EXPECT_EQ(plan_gemm_cpu(plain_problem(DType::float16), amx).parts, 2);
  EXPECT_EQ(plan_gemm_cpu(plain_problem(DType::float32), amx).parts, 3);
  // Two dot products take the time of one float32 product each: parts are not worth it.
  const auto dot = machine({GemmUnit::avx512, GemmUnit::avx512_bf16}, 1);
  EXPECT_EQ(plan_gemm_cpu(plain_problem(DType::bfloat16), dot).unit, GemmUnit::avx512_bf16);
  EXPECT_EQ(plan_gemm_cpu(plain_problem(DType::float16), dot).unit, GemmUnit::avx512);
  EXPECT_EQ(plan_gemm_cpu(plain_problem(DType::float32), dot).unit, GemmUnit::avx512);
}

// A part of an element may be 0 where it is not, and 0 times Inf is NaN.
TEST(PlanGemmTest, ElementsAreMultipliedWholeByWhatHasInf) {
  const auto amx = machine({GemmUnit::avx512, GemmUnit::avx512_bf16, GemmUnit::amx_bf16}, 1);
  for (const DType dtype : {DType::bfloat16, DType::float16, DType::float32}) {
    CpuGemmProblem p = plain_problem(dtype);
    p.right_scheme = Scheme::mxfp8_e5m2;
    const GemmUnit unit = plan_gemm_cpu(p, amx).unit;
    EXPECT_EQ(unit, dtype == DType::bfloat16 ? GemmUnit::amx_bf16 : GemmUnit::avx512);
    EXPECT_EQ(plan_gemm_cpu(p, amx).parts, 1);
  }
}

TEST(PlanGemmTest, BlocksCoverTheOutputOnce) {
  for (const GemmUnit unit : all_gemm_units) {
    const GemmUnitFacts facts = facts_of(unit);
    for (const std::int64_t m : {1, 31, 512, 513, 4096, 100000}) {
      for (const std::int64_t n : {1, 33, 1024, 1025, 11008}) {
        for (const int threads : {1, 2, 7, 64}) {
          const CpuGemmPlan plan = plan_gemm_cpu_with(unit, problem(m, n, 256, 3), threads);
          EXPECT_EQ(plan.block_rows % facts.tile_rows, 0);
          EXPECT_EQ(plan.block_columns % facts.tile_columns, 0);
          EXPECT_LE(plan.block_rows, facts.max_block_rows);
          EXPECT_LE(plan.block_columns, facts.max_block_columns);
          EXPECT_EQ(plan.row_blocks, ceil_div(m, plan.block_rows)) << describe(plan);
          EXPECT_EQ(plan.column_blocks, ceil_div(n, plan.block_columns)) << describe(plan);
          EXPECT_EQ(plan.blocks, 3 * plan.row_blocks * plan.column_blocks);
          EXPECT_LE(plan.slots, threads);
        }
      }
    }
  }
}

TEST(PlanGemmTest, WorkingMemoryIsBounded) {
  for (const GemmUnit unit : all_gemm_units) {
    CpuGemmProblem huge = plain_problem(DType::float32);
    huge.m = huge.n = huge.k = 1 << 20;
    for (const int threads : {1, 16}) {
      const CpuGemmPlan plan = plan_gemm_cpu_with(unit, huge, threads);
      EXPECT_LE(plan.workspace_bytes, static_cast<std::size_t>(threads) * (7u << 20))
          << describe(plan);
    }
    const CpuGemmPlan small = plan_gemm_cpu_with(unit, problem(32, 32, 32), 16);
    EXPECT_LE(small.workspace_bytes, 32u << 10) << describe(small);
  }
}

TEST(PlanGemmTest, SmallProductsStayOnOneThreadAndLargeOnesUseAll) {
  for (const GemmUnit unit : all_gemm_units) {
    EXPECT_EQ(plan_gemm_cpu_with(unit, problem(32, 32, 32), 8).blocks, 1);
    const CpuGemmPlan large = plan_gemm_cpu_with(unit, problem(4096, 4096, 4096), 8);
    EXPECT_EQ(large.slots, 8) << describe(large);
    EXPECT_EQ(large.blocks % 8, 0) << describe(large);
  }
}

TEST(PlanGemmTest, DescriptionNamesWhatMatters) {
  const std::string text =
      describe(plan_gemm_cpu(problem(64, 96, 64), machine({GemmUnit::avx2}, 2)));
  for (const char* part : {"avx2", "6x16", "1 block", "workspace"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace mxkern
