// tests/plan_few_test.cc: plans of few-token products fit their device, whatever the shape.
#include "plan_few.h"

#include <gtest/gtest.h>

#include "mxkern/core/math.h"
#include "mxkern/kernels/few_shape.h"
#include "mxkern/kernels/few_sm90_shape.h"
#include "mxkern/kernels/staged_sm90_shape.h"
#include "mxkern/numerics/visit.h"

namespace mxkern {
namespace {

const std::int64_t shapes[][2] = {{1, 1},        {32, 128},     {33, 129},     {4096, 4096},
                                  {8192, 28672}, {28672, 8192}, {14336, 4096}, {128256, 4096}};
constexpr int processors = 132;

template <class Visitor>
void for_each_plan(Visitor&& visitor) {
  for (const Scheme scheme : all_schemes) {
    for (const auto& shape : shapes) {
      for (const std::int64_t tokens : {1, 8, 9, 16, 17, 32, 33, 64, 65, 256}) {
        for (const std::int64_t batch : {1, 5}) {
          SCOPED_TRACE(::testing::Message() << name_of(scheme) << " " << batch << " x " << tokens
                                            << " x " << shape[0] << " x " << shape[1]);
          visitor(scheme, tokens, plan_few(scheme, batch, tokens, shape[0], shape[1], processors));
        }
      }
    }
  }
}

TEST(PlanFew, FitsTheDevice) {
  for_each_plan([](Scheme scheme, std::int64_t tokens, const FewPlan& plan) {
    using kernels::FewShape;
    const SchemeFacts facts = facts_of(scheme);
    const FewShape shape{facts.bits, facts.block, plan.tokens};
    EXPECT_GE(plan.row_tiles, 1);
    EXPECT_GE(plan.warp_tiles, 1);
    EXPECT_LE(plan.warp_tiles, shape.most_warp_tiles());
    EXPECT_EQ(plan.row_tiles % plan.warp_tiles, 0);
    const int warps = plan.row_tiles / plan.warp_tiles << plan.log2_parts;
    EXPECT_LE(warps, shape.warps());
    EXPECT_GE(plan.stages, 2);
    EXPECT_GE(plan.x_stages, shape.loads_tokens() ? 0 : 2);
    EXPECT_LE(1 << plan.log2_ranks, 8);
    EXPECT_EQ(plan.shared_bytes, shape.bytes(plan.row_tiles, plan.log2_parts, plan.log2_ranks,
                                             plan.stages, plan.x_stages));
    EXPECT_LE(plan.shared_bytes, shape.room());
    EXPECT_LE(shape.tenants() * (shape.room() + 1024), 228 * 1024);
    if (shape.tenants() == 2) {
      EXPECT_GT(3 * (plan.shared_bytes + 1024), 228 * 1024);
    }
    // One barrier for each of a warp's stages, two for each stage of tokens, one for the cluster.
    EXPECT_LE((warps * plan.stages + 2 * plan.x_stages + 1) * 8, FewShape::barrier_bytes);
    EXPECT_TRUE(plan.tokens == 64 || plan.tokens >= tokens);
    EXPECT_TRUE(plan.tokens == 8 || plan.tokens / 2 < tokens);
  });
}

// Weights of a layer keep most multiprocessors at work.
TEST(PlanFew, FillsTheDevice) {
  for (const Scheme scheme : all_schemes) {
    for (const auto& shape : shapes) {
      if (shape[0] < 4096) continue;
      const FewPlan plan = plan_few(scheme, 1, 16, shape[0], shape[1], processors);
      const std::int64_t blocks = ceil_div(ceil_div(shape[0], 32), plan.row_tiles)
                                  << plan.log2_ranks;
      EXPECT_GE(blocks, 100) << name_of(scheme) << " " << shape[0] << " x " << shape[1];
    }
  }
}

TEST(PlanFew, FitsHopper) {
  using kernels::FewShape;
  using Sm90 = kernels::FewSm90Shape;
  for (const Scheme scheme : all_schemes) {
    for (const auto& shape : shapes) {
      for (const std::int64_t tokens :
           {17, 32, 33, 64, 65, 96, 100, 128, 200, 256, 257, 300, 2048}) {
        SCOPED_TRACE(::testing::Message()
                     << name_of(scheme) << " " << tokens << " x " << shape[0] << " x " << shape[1]);
        const SchemeFacts facts = facts_of(scheme);
        const FewPlan plan = plan_few_sm90(scheme, 1, tokens, shape[0], shape[1], processors);
        const FewShape few{facts.bits, facts.block, plan.tokens};
        if (plan.is_staged) {
          using Staged = kernels::StagedSm90Shape;
          EXPECT_FALSE(plan.arranges);
          EXPECT_GE(plan.stages, 2);
          EXPECT_LE(plan.stages, Staged::most_stages);
          EXPECT_EQ(plan.shared_bytes, Staged::bytes(few, plan.row_tiles, plan.stages));
          EXPECT_LE(plan.shared_bytes, Staged::limit);
          continue;
        }
        const int groups = Sm90::warpgroups(plan.tokens), parts = 1 << plan.log2_parts;
        EXPECT_EQ(plan.row_tiles * parts, groups * Sm90::group_tiles);
        EXPECT_GE(plan.stages, 2);
        // A stage of tokens is always the same part's, and there is one more for it.
        EXPECT_GE(plan.x_stages, 2 * parts);
        EXPECT_EQ(plan.x_stages % parts, 0);
        EXPECT_EQ(plan.shared_bytes, Sm90::bytes(few, plan.row_tiles, plan.log2_parts,
                                                 plan.log2_ranks, plan.stages, plan.x_stages));
        EXPECT_LE(plan.shared_bytes, Sm90::limit);
        EXPECT_LE((2 * plan.stages + 6 * plan.x_stages + 1) * 8, FewShape::barrier_bytes);
        // A thread block puts at most 64 tokens in order, and there is memory where none does.
        EXPECT_TRUE(plan.arranges || plan.tokens <= 64);
        EXPECT_TRUE(may_arrange_few_sm90(tokens) || !plan.arranges);
        const int largest = few_sm90_group(tokens);
        EXPECT_TRUE(tokens > 256 || largest >= tokens);
        EXPECT_TRUE(plan.tokens == largest || plan.tokens * 2 == largest);
        EXPECT_GE(arranged_bytes(3, tokens, shape[1]),
                  3 * round_up(tokens, plan.tokens) * round_up(shape[1], 128) * 2);
      }
    }
  }
}

// Where the next kernel's thread blocks start beside these, one is on every multiprocessor.
TEST(PlanFew, LeavesAsMuchRoomEverywhere) {
  for (const Scheme scheme : all_schemes) {
    for (const auto& shape : shapes) {
      for (const std::int64_t tokens : {1, 8, 16}) {
        const FewPlan plan = plan_few(scheme, 1, tokens, shape[0], shape[1], processors);
        const std::int64_t groups = ceil_div(ceil_div(shape[0], 32), plan.row_tiles);
        const std::int64_t blocks = (groups + plan.idle_groups) << plan.log2_ranks;
        EXPECT_GE(plan.idle_groups, 0);
        if (facts_of(scheme).bits == 4) {
          EXPECT_GE(blocks, processors) << name_of(scheme) << " " << shape[0] << " x " << shape[1];
        } else {
          EXPECT_EQ(plan.idle_groups, 0);
        }
      }
    }
  }
}

TEST(PlanFew, MemoryForABatchIsEnoughEitherWay) {
  // As one matrix of 72 tokens the batch is for Hopper's kernel, matrix by matrix it is not.
  EXPECT_EQ(arranged_for_few(DType::bfloat16, 3, 24, 72, 1000, 128), 96 * 128 * 2);
  EXPECT_EQ(arranged_for_few(DType::bfloat16, 3, 65, 195, 1000, 128), 3 * 96 * 128 * 2);
  EXPECT_EQ(arranged_for_few(DType::bfloat16, 1, 64, 64, 1000, 128), 0);
  EXPECT_EQ(arranged_for_few(DType::bfloat16, 1, 32, 32, 8192, 8192), 0);
  EXPECT_EQ(arranged_for_few(DType::bfloat16, 1, 33, 33, 8192, 8192), 64 * 8192 * 2);
  EXPECT_EQ(arranged_for_few(DType::float16, 1, 128, 128, 1000, 128), 128 * 128 * 2);
  EXPECT_EQ(arranged_for_few(DType::float32, 1, 128, 128, 1000, 128), 0);
}

// Which kernel is faster is a measured thing: small weights are for the other one.
TEST(PlanFew, PrefersHopperWhereItIsFaster) {
  EXPECT_TRUE(prefers_few_sm90(DType::bfloat16, 17, 8192, 8192));
  EXPECT_TRUE(prefers_few_sm90(DType::bfloat16, 17, 14336, 4096));
  EXPECT_FALSE(prefers_few_sm90(DType::bfloat16, 16, 8192, 8192));
  EXPECT_FALSE(prefers_few_sm90(DType::bfloat16, 64, 4096, 4096));
  EXPECT_TRUE(prefers_few_sm90(DType::bfloat16, 32, 4096, 14336));
  EXPECT_TRUE(prefers_few_sm90(DType::bfloat16, 64, 4096, 14336));
  EXPECT_TRUE(prefers_few_sm90(DType::bfloat16, 65, 4096, 14336));
  EXPECT_TRUE(prefers_few_sm90(DType::float16, 17, 8192, 8192));
  EXPECT_TRUE(prefers_few_sm90(DType::float16, 17, 4096, 4096));
  EXPECT_FALSE(prefers_few_sm90(DType::float16, 16, 4096, 4096));
  EXPECT_FALSE(prefers_few_sm90(DType::float32, 128, 8192, 8192));
}

// From 65 to 128 tokens parts of K in a thread block cost less than a cluster.
TEST(PlanFew, DividesKInThreadBlocksWhereTokensAreHidden) {
  for (const std::int64_t tokens : {65, 96, 128}) {
    const FewPlan plan = plan_few_sm90(Scheme::mxfp4, 1, tokens, 8192, 8192, processors);
    EXPECT_EQ(plan.log2_ranks, 0) << tokens;
    EXPECT_EQ(plan.log2_parts, 1) << tokens;
  }
  EXPECT_EQ(plan_few_sm90(Scheme::mxfp4, 1, 64, 8192, 8192, processors).log2_ranks, 1);
}

// Whether thread blocks put the tokens in order themselves is a measured thing too.
TEST(PlanFew, ArrangesWhereThatIsFaster) {
  const auto arranges = [](std::int64_t tokens, std::int64_t rows, std::int64_t columns) {
    return plan_few_sm90(Scheme::mxfp4, 1, tokens, rows, columns, processors).arranges;
  };
  for (const auto& shape : shapes) EXPECT_FALSE(arranges(32, shape[0], shape[1]));
  EXPECT_FALSE(arranges(64, 8192, 8192));
  EXPECT_TRUE(arranges(64, 28672, 8192));
  EXPECT_TRUE(arranges(64, 8192, 28672));
  EXPECT_TRUE(arranges(64, 4096, 14336));
  EXPECT_TRUE(arranges(65, 8192, 8192));
}

// Where weights of 4 bits are decoded into shared memory is a measured thing as well: where thread
// blocks of 224 rows are one round and those of 128 rows two.
TEST(PlanFew, DecodesIntoSharedMemoryWhereThatIsFaster) {
  const auto plan = [](Scheme scheme, std::int64_t tokens, std::int64_t rows,
                       std::int64_t columns) {
    return plan_few_sm90(scheme, 1, tokens, rows, columns, processors);
  };
  for (const std::int64_t tokens : {65, 96, 128}) {
    const FewPlan large = plan(Scheme::mxfp4, tokens, 28672, 8192);
    EXPECT_TRUE(large.is_staged) << tokens;
    EXPECT_EQ(large.row_tiles, 7);
    EXPECT_EQ(large.log2_ranks, 0);
    EXPECT_EQ(plan(Scheme::nvfp4, tokens, 28672, 8192).is_staged, tokens == 128);
    EXPECT_FALSE(plan(Scheme::mxfp4, tokens, 8192, 8192).is_staged) << tokens;
    EXPECT_FALSE(plan(Scheme::mxfp4, tokens, 24576, 8192).is_staged) << tokens;
    EXPECT_EQ(plan(Scheme::mxfp4, tokens, 14336, 4096).is_staged, tokens == 128);
  }
  EXPECT_EQ(plan(Scheme::mxfp4, 128, 16384, 8192).row_tiles, 8);
  EXPECT_EQ(plan(Scheme::mxfp4, 128, 16384, 8192).log2_ranks, 1);
  EXPECT_FALSE(plan(Scheme::nvfp4, 128, 16384, 8192).is_staged);
  for (const std::int64_t tokens : {64, 129, 256}) {
    EXPECT_FALSE(plan(Scheme::mxfp4, tokens, 28672, 8192).is_staged) << tokens;
  }
  for (const Scheme scheme : all_schemes) {
    EXPECT_EQ(plan(scheme, 128, 28672, 8192).is_staged, facts_of(scheme).bits == 4);
    EXPECT_FALSE(plan_few_sm90(scheme, 1, 128, 28672, 8192, processors, DType::float16).is_staged);
  }
}

// Where a round of thread blocks more, or multiprocessors that stay idle, took 20 to 50 % longer.
TEST(PlanFew, DividesRowsAsWasFastest) {
  struct Case {
    Scheme scheme;
    std::int64_t tokens, rows, columns;
    int row_tiles, log2_parts, log2_ranks;
  };
  const Case cases[] = {
      {Scheme::mxfp4, 8, 6144, 4096, 1, 3, 0},   {Scheme::mxfp4, 8, 10240, 8192, 2, 2, 0},
      {Scheme::nvfp4, 16, 10240, 8192, 2, 3, 0}, {Scheme::nvfp4, 16, 12288, 4096, 2, 3, 0},
      {Scheme::nvfp4, 16, 9216, 4096, 2, 3, 0},  {Scheme::nvfp4, 8, 22016, 4096, 4, 2, 0},
  };
  for (const Case& c : cases) {
    const FewPlan plan = plan_few(c.scheme, 1, c.tokens, c.rows, c.columns, processors);
    SCOPED_TRACE(::testing::Message() << name_of(c.scheme) << " " << c.rows << " x " << c.columns);
    EXPECT_EQ(plan.row_tiles, c.row_tiles);
    EXPECT_EQ(plan.log2_parts, c.log2_parts);
    EXPECT_EQ(plan.log2_ranks, c.log2_ranks);
  }
}

TEST(PlanFew, IsPure) {
  const FewPlan plan = plan_few(Scheme::nvfp4, 2, 7, 1000, 3000, processors);
  EXPECT_EQ(plan, plan_few(Scheme::nvfp4, 2, 7, 1000, 3000, processors));
}

}  // namespace
}  // namespace mxkern
