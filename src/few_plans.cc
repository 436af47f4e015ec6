// few_plans.cc: plans of few-token products, remembered.
#include "few_plans.h"

#include <array>
#include <cstddef>

namespace mxkern {

FewPlan remembered_plan(const FewQuestion& question) {
  struct Answer {
    FewQuestion question;
    FewPlan plan;
  };
  static thread_local std::array<Answer, 64> answers{};  // of none: there are no 0 processors
  std::uint64_t hash = static_cast<std::uint64_t>(question.scheme);
  for (const std::int64_t part :
       {question.batch, question.tokens, question.rows, question.columns}) {
    hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9E3779B97F4A7C15u;
  }
  Answer& answer = answers[static_cast<std::size_t>(hash >> 58)];
  if (answer.question != question) answer = {question, question.answer()};
  return answer.plan;
}

}  // namespace mxkern
