// tests/plan/grouped_test.cc: how products of groups of rows are cut up.
#include "plan/grouped.h"

#include "mxkern/kernels/decode/shared_memory.h"

namespace mxkern {
namespace {

DecodePlan plan_of(Scheme scheme, std::int64_t groups, std::int64_t rows, std::int64_t outputs,
                   std::int64_t columns) {
  GroupedQuestion question{};
  question.scheme = scheme;
  question.has_sm90 = true;
  question.processors = 132;
  question.groups = groups;
  question.rows = rows;
  question.outputs = outputs;
  question.columns = columns;
  return plan_grouped(question);
}

TEST(PlanGrouped, FitsIntoAThreadBlock) {
  for (const Scheme scheme : all_schemes) {
    const SchemeFacts facts = facts_of(scheme);
    for (const std::int64_t rows : {1, 7, 60, 300, 900, 2000}) {
      for (const std::int64_t columns : {1, 128, 2880, 70000}) {
        const DecodePlan plan = plan_of(scheme, 64, rows, 2880, columns);
        if (plan.on_sm90) continue;
        const kernels::DecodeShape shape{facts.bits, facts.block, plan.tokens};
        EXPECT_GE(plan.stages, 2);
        EXPECT_GE(plan.row_tiles, 1);
        EXPECT_LE(plan.row_tiles << plan.log2_parts, shape.warps());
        EXPECT_EQ(plan.shared_bytes, shape.bytes_of_groups(plan.row_tiles << plan.log2_parts));
        EXPECT_LE(plan.shared_bytes, shape.room());
      }
    }
  }
}

// One token of gpt-oss has 4 experts, eight have 32 and 64 all of them.
TEST(PlanGrouped, DividesColumnsWhereThereIsLittle) {
  EXPECT_EQ(plan_of(Scheme::mxfp4, 128, 4, 2880, 2880).log2_parts, 2);
  EXPECT_EQ(plan_of(Scheme::mxfp4, 128, 4, 5760, 2880).log2_parts, 1);
  EXPECT_EQ(plan_of(Scheme::mxfp4, 128, 32, 5760, 2880).log2_parts, 0);
  EXPECT_EQ(plan_of(Scheme::mxfp4, 128, 256, 5760, 2880).log2_parts, 0);
}

TEST(PlanGrouped, HasMoreRowsWhereGroupsHave) {
  int before = 0;
  for (const std::int64_t each : {4, 5, 12, 13, 24, 25, 96, 97}) {
    const DecodePlan plan = plan_of(Scheme::mxfp4, 32, 32 * each, 2880, 2880);
    EXPECT_GE(plan.tokens, before);
    before = plan.tokens;
    EXPECT_EQ(plan.on_sm90, plan.tokens > 16);
  }
  EXPECT_EQ(before, 128);
}

}  // namespace
}  // namespace mxkern
