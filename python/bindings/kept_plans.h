// bindings/kept_plans.h: the last plans of products, for callers that make the same ones again and
// again, as the layers of a model do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "mxkern/plan.h"

namespace mxkern::bindings {

// Not for several threads at once.
class KeptPlans {
 public:
  // That of gemm with these arguments. It depends on their problem and on the device alone.
  const GemmPlan& plan(const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
                       const GemmOptions& options) {
    if (kept_.empty()) kept_.resize(count);
    const GemmProblem problem(a, b, out, options);
    Kept& kept = kept_[place_of(problem)];
    if (!kept.plan || kept.device != out.device || !(kept.problem == problem)) {
      kept.plan.reset();
      kept.plan = plan_gemm(a, b, out, options);
      kept.problem = problem;
      kept.device = out.device;
    }
    return *kept.plan;
  }

 private:
  static constexpr std::size_t log2_count = 6, count = std::size_t{1} << log2_count;

  struct Kept {
    GemmProblem problem;
    Device device;
    std::optional<GemmPlan> plan;
  };

  static std::size_t place_of(const GemmProblem& problem) {
    std::uint64_t hash = static_cast<std::uint64_t>(problem.right.scheme);
    const Shape &left = problem.left.shape, &right = problem.right.shape;
    for (const std::int64_t part : {left.batch, left.rows, right.rows, right.columns}) {
      hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9E3779B97F4A7C15u;
    }
    return static_cast<std::size_t>(hash >> (64 - log2_count));
  }

  std::vector<Kept> kept_;
};

}  // namespace mxkern::bindings
