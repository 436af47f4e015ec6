// tests/few_plans_test.cc: plans that are remembered are those that would be made.
#include "few_plans.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace mxkern {
namespace {

// More questions than are kept, each asked again once others have taken its place; such that differ
// in a single part are among them.
std::vector<FewQuestion> questions() {
  std::vector<FewQuestion> all;
  for (const std::int64_t tokens : {1, 8, 16, 17, 64, 100}) {
    for (const Scheme scheme : {Scheme::mxfp4, Scheme::nvfp4, Scheme::mxfp8_e4m3}) {
      for (const DType dtype : {DType::bfloat16, DType::float16}) {
        for (const int processors : {132, 108}) {
          for (const std::int64_t rows : {4096, 8192}) {
            const bool may_use_sm90 = may_use_few_sm90(dtype, tokens) && processors == 132;
            all.push_back({scheme, dtype, may_use_sm90, processors, 1, tokens, rows, 4096});
            all.push_back({scheme, dtype, may_use_sm90, processors, 3, tokens, 4096, rows});
          }
        }
      }
    }
  }
  return all;
}

void expect_answers() {
  const std::vector<FewQuestion> all = questions();
  for (int turn = 0; turn < 2; ++turn) {
    for (const FewQuestion& question : all) {
      const FewPlan plan = remembered_plan(question);
      EXPECT_EQ(plan, question.answer());
      EXPECT_EQ(plan, remembered_plan(question));
    }
  }
}

TEST(FewPlans, RememberedOnesAreThose) { expect_answers(); }

TEST(FewPlans, ThreadsDoNotShareThem) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(expect_answers);
  for (std::thread& thread : threads) thread.join();
}

// What differs in one part is another question.
TEST(FewPlans, QuestionsDifferInEveryPart) {
  const FewQuestion question{Scheme::mxfp4, DType::bfloat16, true, 132, 1, 64, 4096, 4096};
  const auto differs = [&](auto change) {
    FewQuestion other = question;
    change(other);
    return other != question;
  };
  EXPECT_TRUE(differs([](FewQuestion& q) { q.scheme = Scheme::nvfp4; }));
  EXPECT_TRUE(differs([](FewQuestion& q) { q.x_dtype = DType::float16; }));
  EXPECT_TRUE(differs([](FewQuestion& q) { q.may_use_sm90 = false; }));
  EXPECT_TRUE(differs([](FewQuestion& q) { q.processors = 78; }));
  EXPECT_TRUE(differs([](FewQuestion& q) { q.batch = 2; }));
  EXPECT_TRUE(differs([](FewQuestion& q) { q.tokens = 65; }));
  EXPECT_TRUE(differs([](FewQuestion& q) { q.rows = 2048; }));
  EXPECT_TRUE(differs([](FewQuestion& q) { q.columns = 2048; }));
}

}  // namespace
}  // namespace mxkern
