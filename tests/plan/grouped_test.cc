// tests/plan/grouped_test.cc: which kernel computes a grouped product, without a GPU.
#include "plan/grouped.h"

#include <set>
#include <string>
#include <utility>

#include "cuda/gemm/hopper/groups.h"
#include "mxkern/core/error.h"
#include "mxkern/kernels/decode/shared_memory.h"
#include "mxkern/kernels/gemm/group_tiles.h"
#include "tests/support/error_message.h"
#include "tests/support/gemm_case.h"

namespace mxkern {
namespace {

using namespace test;

GroupedQuestion question(std::int64_t groups, std::int64_t rows, bool has_sm90 = true) {
  return {Scheme::mxfp4, has_sm90, 132, groups, rows, 5760, 2880};
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
    for (const std::int64_t groups : {0, 1, 7, 128}) {
      for (const std::int64_t rows : {1, 5, 33, 300, 5000, 100000}) {
        for (const std::int64_t outputs : {1, 40, 2880, 14336}) {
          for (const std::int64_t columns : {1, 96, 2880, 14336}) {
            for (const bool has_sm90 : {false, true}) {
              const DecodePlan plan =
                  plan_grouped({scheme, has_sm90, 132, groups, rows, outputs, columns});
              EXPECT_GE(plan.stages, 2);
              EXPECT_EQ(plan.log2_ranks, 0);
              EXPECT_EQ(plan.idle_groups, 0);
              EXPECT_LE(plan.shared_bytes, 227 * 1024);
              EXPECT_EQ(plan.on_sm90, plan.tokens > 16);
              EXPECT_TRUE(has_sm90 || !plan.on_sm90);
              EXPECT_EQ(plan.x_stages == 0, !plan.on_sm90);
              const std::set<int> sizes = {8, 16, 32, 64, 128};
              EXPECT_TRUE(sizes.count(plan.tokens) == 1) << plan.tokens;
              if (plan.on_sm90) continue;
              const SchemeFacts facts = facts_of(scheme);
              const kernels::DecodeShape shape{facts.bits, facts.block, plan.tokens};
              const int warps = plan.row_tiles << plan.log2_parts;
              EXPECT_GE(plan.row_tiles, 1);
              EXPECT_LE(warps, shape.warps());
              EXPECT_EQ(plan.shared_bytes, shape.bytes_of_groups(warps));
              EXPECT_LE(plan.shared_bytes, shape.room());
            }
          }
        }
      }
    }
  }
}

// One token of gpt-oss has 4 experts, eight have 32 and 64 all of them.
TEST(PlanGrouped, DividesColumnsWhereThereIsLittle) {
  EXPECT_EQ(plan_grouped({Scheme::mxfp4, true, 132, 128, 4, 2880, 2880}).log2_parts, 2);
  EXPECT_EQ(plan_grouped(question(128, 4)).log2_parts, 1);
  EXPECT_EQ(plan_grouped(question(128, 32)).log2_parts, 0);
  EXPECT_EQ(plan_grouped(question(128, 256)).log2_parts, 0);
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

class OfOperands : public ::testing::Test {
 protected:
  const CudaGemmCapabilities hopper = {}, ampere = capabilities_of("sm_80");
  const Buffer x = plain(DType::bfloat16, {1, 64, 256});
  const BlockScaled q = quantized(Scheme::mxfp8_e4m3, {1, 64, 256});
  const BlockScaled w = quantized(Scheme::mxfp4, {8, 96, 256});

  static PreparedOperand ready(const BlockScaled& of, PreparedForm form, bool has_source = true) {
    PreparedOperand p{form, of, nullptr, 0};
    if (!has_source) p.source.codes = p.source.scales = nullptr;
    return p;
  }
  static CudaGroupedPlan plan(const GemmOperand& a, const GemmRightOperand& b,
                              const CudaGemmCapabilities& capabilities,
                              GemmPrecision precision = GemmPrecision::exact) {
    return plan_grouped_cuda(a, b, RowGroups{nullptr, source_of(b).shape.batch}, precision,
                             capabilities);
  }
  static CudaGroupedPlan of_columns(const GemmOperand& a, const GemmRightOperand& b,
                                    const CudaGemmCapabilities& capabilities,
                                    GemmPrecision precision = GemmPrecision::exact) {
    return plan_grouped_cuda(a, b, ColumnGroups{nullptr, 4}, precision, capabilities);
  }
  CudaGroupedPlan folded(const GemmOperand& a, const GemmRightOperand& b) const {
    return plan(a, b, hopper, GemmPrecision::folded);
  }
};
using PlanGroupedOfOperands = OfOperands;

TEST_F(PlanGroupedOfOperands, ColumnsThatCannotBeCounted) {
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 1024;
  for (const std::int64_t columns : {most, most + 1}) {
    const auto attempt = [&] {
      return plan(quantized(Scheme::mxfp4, {1, 4, columns}),
                  quantized(Scheme::mxfp4, {2, 8, columns}), hopper);
    };
    if (columns == most) {
      EXPECT_EQ(attempt().path, GroupedPath::few_tokens);
    } else {
      expect_failure<InvalidArgument>(
          "grouped_gemm: a and b have 2147482625 columns; expected at most 2147482624", attempt);
    }
  }
}

TEST_F(PlanGroupedOfOperands, WhatKernelsDoNotCount) {
  constexpr std::int64_t end = std::int64_t{1} << 30, wide = std::int64_t{1} << 24;
  const auto rows = [&](std::int64_t m, std::int64_t n, std::int64_t groups) {
    return [=, this] {
      return plan(quantized(Scheme::mxfp4, {1, m, 64}), quantized(Scheme::mxfp4, {groups, n, 64}),
                  hopper);
    };
  };
  const auto columns = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    return [=, this] {
      return of_columns(quantized(Scheme::mxfp4, {1, m, k}), quantized(Scheme::mxfp4, {1, n, k}),
                        hopper, GemmPrecision::folded);
    };
  };
  EXPECT_EQ(rows(end - 1, 8, 2)().path, GroupedPath::few_tokens);
  EXPECT_EQ(columns(96, 8, end - 1)().path, GroupedPath::folded);
  expect_failure<InvalidArgument>("there are 2 groups of 1073741824 rows; expected fewer than 2^30",
                                  rows(end, 8, 2));
  expect_failure<InvalidArgument>("there are 1073741824 groups of 64 rows", rows(64, 8, end));
  expect_failure<InvalidArgument>("there are 4 groups of 1073741824 columns", columns(96, 8, end));
  expect_failure<InvalidArgument>("an output has 2147483648 rows and 8 columns",
                                  columns(2 * end, 8, 64));
  expect_failure<InvalidArgument>("an output has 64 rows and 2147483648 columns",
                                  rows(64, 2 * end, 2));
  expect_failure<InvalidArgument>("the output has 1048576 x 262144 tiles", columns(wide, wide, 64));
  expect_failure<InvalidArgument>("the output has 262146 x 262144 tiles", rows(wide, wide, 2));
}

TEST_F(PlanGroupedOfOperands, WeightsThatAreDecoded) {
  const CudaGroupedPlan best = plan(x, ready(w, PreparedForm::few_tokens), hopper);
  EXPECT_EQ(best.path, GroupedPath::few_tokens);
  EXPECT_TRUE(!best.makes_right && !best.makes_left);
  EXPECT_EQ(best.workspace_bytes, 0u);
  const CudaGroupedPlan unprepared = plan(x, w, hopper);
  EXPECT_EQ(unprepared.path, GroupedPath::few_tokens);
  EXPECT_TRUE(unprepared.makes_right);
  EXPECT_GE(unprepared.workspace_bytes, static_cast<std::size_t>(8 * 96 * 128));
  const CudaGroupedPlan of_codes = plan(q, ready(w, PreparedForm::few_tokens), hopper);
  EXPECT_EQ(of_codes.path, GroupedPath::few_tokens);
  EXPECT_TRUE(of_codes.makes_left);
  EXPECT_GE(of_codes.workspace_bytes, static_cast<std::size_t>(64 * 256 * 2));
  // Folded rows are not read, and need what they were made of.
  EXPECT_TRUE(plan(x, ready(w, PreparedForm::folded), hopper).makes_right);
}

TEST_F(PlanGroupedOfOperands, FoldedRowsMeetDecodedWeights) {
  const PreparedOperand few = ready(w, PreparedForm::few_tokens, false);
  const BlockScaled rows = quantized(Scheme::mxfp8_e4m3, {1, 64, 256});
  const CudaGroupedPlan made = folded(rows, few);
  EXPECT_EQ(made.path, GroupedPath::few_folded);
  EXPECT_TRUE(made.makes_left && !made.makes_right && !copies_rows(made));
  EXPECT_GE(made.workspace_bytes, made.interleaved + 64 * 256 + 64 * 4);
  const CudaGroupedPlan ahead = folded(ready(rows, PreparedForm::folded, false), few);
  EXPECT_TRUE(!ahead.makes_left && copies_rows(ahead));
  EXPECT_EQ(folded(ready(rows, PreparedForm::folded), w).path, GroupedPath::folded);
  // As many rows as most groups have fit into a thread block.
  for (const auto& [count, size] : {std::pair{8, 8}, {32, 8}, {64, 16}, {128, 32}, {1024, 128}}) {
    const DecodePlan plan = plan_grouped_folded({Scheme::mxfp4, true, 132, 8, count, 96, 256});
    EXPECT_EQ(plan.tokens, size) << count;
    EXPECT_GE(plan.stages, 2);
  }
}

TEST_F(PlanGroupedOfOperands, WeightsThatAreExpanded) {
  const Buffer wide = plain(DType::float32, {1, 64, 256});
  EXPECT_EQ(plan(wide, w, hopper).path, GroupedPath::expanded);
  const CudaGroupedPlan ready_made = plan(x, ready(w, PreparedForm::expanded), hopper);
  EXPECT_EQ(ready_made.path, GroupedPath::expanded);
  EXPECT_FALSE(ready_made.makes_right);
  const CudaGroupedPlan portable = plan(x, w, ampere);
  EXPECT_EQ(portable.path, GroupedPath::portable);
  EXPECT_TRUE(portable.makes_right && !portable.makes_left);
  EXPECT_GE(portable.workspace_bytes, static_cast<std::size_t>(8 * 96 * 256 * 2));
  CudaGemmCapabilities other = hopper;
  other.has_hopper_kernels = false;
  EXPECT_EQ(plan(wide, w, other).path, GroupedPath::portable);
  // Sums of nothing, of codes that are null as there are none.
  const BlockScaled none = quantized(Scheme::mxfp4, {8, 96, 0});
  const PreparedOperand no_codes = ready(none, PreparedForm::few_tokens, false);
  EXPECT_EQ(plan(plain(DType::bfloat16, {1, 64, 0}), no_codes, hopper).path, GroupedPath::portable);
  EXPECT_EQ(plan(x, quantized(Scheme::mxfp4, {0, 96, 256}), hopper).path, GroupedPath::portable);
}

TEST_F(PlanGroupedOfOperands, GroupsOfColumns) {
  const BlockScaled right = quantized(Scheme::mxfp4, {1, 96, 256});
  const CudaGroupedPlan exact = of_columns(q, right, hopper);
  EXPECT_EQ(exact.path, GroupedPath::expanded);
  EXPECT_TRUE(exact.makes_left && exact.makes_right);
  EXPECT_GE(exact.workspace_bytes, static_cast<std::size_t>((64 + 96) * 256 * 2));
  // Nothing decodes tokens.
  const CudaGroupedPlan few = of_columns(x, ready(right, PreparedForm::few_tokens), hopper);
  EXPECT_EQ(few.path, GroupedPath::expanded);
  EXPECT_TRUE(few.makes_right && !few.makes_left);
  // Elements of several parts.
  const Buffer wide = plain(DType::float32, {1, 64, 256}),
               half = plain(DType::float16, {1, 64, 256});
  EXPECT_EQ(of_columns(wide, right, hopper).path, GroupedPath::portable);
  EXPECT_EQ(of_columns(half, right, hopper).path, GroupedPath::portable);
  EXPECT_EQ(of_columns(q, right, ampere).path, GroupedPath::portable);
  const CudaGroupedPlan folded_rows =
      of_columns(ready(q, PreparedForm::folded), right, hopper, GemmPrecision::folded);
  EXPECT_EQ(folded_rows.path, GroupedPath::folded);
  EXPECT_TRUE(!folded_rows.makes_left && folded_rows.makes_right);
  EXPECT_THROW(of_columns(x, right, hopper, GemmPrecision::folded), InvalidArgument);
  EXPECT_THROW(of_columns(q, right, ampere, GemmPrecision::folded), Unsupported);
}

TEST_F(PlanGroupedOfOperands, FoldedOnes) {
  const CudaGroupedPlan of_codes = folded(q, w);
  EXPECT_EQ(of_codes.path, GroupedPath::folded);
  EXPECT_TRUE(of_codes.makes_left && of_codes.makes_right);
  EXPECT_GE(of_codes.right, static_cast<std::size_t>(64 * 256));
  EXPECT_GE(of_codes.workspace_bytes, static_cast<std::size_t>((64 + 8 * 96) * 256));
  const CudaGroupedPlan ready_made =
      folded(ready(q, PreparedForm::folded, false), ready(w, PreparedForm::folded, false));
  EXPECT_EQ(ready_made.path, GroupedPath::folded);
  EXPECT_TRUE(!ready_made.makes_left && !ready_made.makes_right);
  EXPECT_EQ(ready_made.workspace_bytes, 0u);
  EXPECT_TRUE(
      folded(q, ready(quantized(Scheme::mxfp8_e4m3, {8, 96, 256}), PreparedForm::few_tokens))
          .makes_right);
  EXPECT_EQ(folded(q, quantized(Scheme::mxfp4, {8, 96, 0})).path, GroupedPath::portable);
}

TEST_F(PlanGroupedOfOperands, RefusesWhatItCannotMake) {
  expect_failure<Unsupported>("b was prepared in the form folded without its codes",
                              [&] { plan(x, ready(w, PreparedForm::folded, false), hopper); });
  expect_failure<Unsupported>("b was prepared in the form few_tokens without its codes",
                              [&] { plan(x, ready(w, PreparedForm::few_tokens, false), ampere); });
  expect_failure<Unsupported>(
      "a was prepared in the form expanded without its codes and scales; "
      "expected folded",
      [&] { folded(ready(q, PreparedForm::expanded, false), w); });
  expect_failure<InvalidArgument>("grouped_gemm: precision is folded, but a is bfloat16",
                                  [&] { folded(x, w); });
  expect_failure<InvalidArgument>("precision is folded, but b is nvfp4", [&] {
    folded(q, quantized(Scheme::nvfp4, {8, 96, 256}));
  });
  expect_failure<Unsupported>("this device has 8.0; pass precision exact",
                              [&] { plan(q, w, ampere, GemmPrecision::folded); });
}

// Thread blocks of Hopper's tiles come in pairs where their number is even, or large.
TEST(PlanGrouped, TilesOnHopper) {
  constexpr auto e4m3 = cuda::CoreElement::e4m3;
  EXPECT_EQ(cuda::grouped_tile_sm90(e4m3, 4096, 4096).columns, 256);
  EXPECT_EQ(cuda::grouped_tile_sm90(e4m3, 4096, 4096).cluster, 2);
  EXPECT_EQ(cuda::grouped_tile_sm90(e4m3, 384, 4096).columns, 192);
  EXPECT_EQ(cuda::grouped_tile_sm90(e4m3, 100, 4096).columns, 128);
  EXPECT_EQ(cuda::grouped_tile_sm90(e4m3, 100, 4096).cluster, 1);
  for (const auto element : {e4m3, cuda::CoreElement::e5m2, cuda::CoreElement::bfloat16}) {
    for (std::int64_t n = 1; n < 9000; n += 61) {
      for (const std::int64_t k : {1, 300, 5000}) {
        const cuda::TileSm90 tile = cuda::grouped_tile_sm90(element, n, k);
        EXPECT_EQ(tile.rows, 128);
        EXPECT_TRUE(tile.columns == 256 || tile.columns == 192 || tile.columns == 128);
        EXPECT_TRUE(tile.cluster == 1 || tile.cluster == 2);
        EXPECT_EQ(tile.k, element == cuda::CoreElement::bfloat16 ? 64 : 128);
      }
    }
  }
  EXPECT_EQ(cuda::grouped_height_sm90(320, 10), 64);
  EXPECT_EQ(cuda::grouped_height_sm90(321, 10), 128);
}

// Every tile of a group once, and those of a band one below the other.
TEST(PlanGrouped, OrderOfTiles) {
  for (const int across : {1, 2, 7}) {
    for (const int band : {1, 3, 11}) {
      const kernels::GroupTileOrder order(across, band);
      for (int down = 1; down <= 25; ++down) {
        std::set<std::pair<int, int>> seen;
        for (int i = 0; i < down * across; ++i) {
          const auto tile = order.at(i, down);
          EXPECT_TRUE(tile.down >= 0 && tile.down < down && tile.right >= 0 && tile.right < across);
          EXPECT_EQ(tile.down / band, i / (band * across));
          EXPECT_TRUE(seen.insert({tile.down, tile.right}).second);
        }
      }
    }
  }
}

}  // namespace
}  // namespace mxkern
