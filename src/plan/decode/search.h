// plan/decode/search.h: the fastest plan of the kernel for few tokens that all devices have, and
// its time; what both kernels' plans share.
#pragma once

#include <initializer_list>
#include <limits>

#include "plan/decode/cost_model.h"
#include "plan/decode/plan.h"

namespace mxkern {

struct TimedFewPlan {
  FewPlan plan{};
  double time = std::numeric_limits<double>::infinity();
};

// Defined beside plan_few. With one of these numbers of tokens a thread block.
TimedFewPlan fastest_few(const FewWork& work, std::initializer_list<int> token_sizes);

// Defined there too: for a plan whose thread blocks share multiprocessors with another kernel's.
// Where all find room at once, one on each multiprocessor leaves one place on each to the next
// kernel, whose thread blocks are to be spread as evenly.
int idle_groups(const FewWork& work, const FewPlan& plan);

// Calls visitor with all plans that are looked at and have room, for measuring: of gemm_few with so
// many tokens a thread block, and of gemm_few_sm90.
using FewVisitor = void(const FewPlan& plan, void* context);
void visit_few(const FewWork& work, int tokens, FewVisitor* visitor, void* context);
void visit_few_sm90(const FewWork& work, FewVisitor* visitor, void* context);

}  // namespace mxkern
