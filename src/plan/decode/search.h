// plan/decode/search.h: the fastest plan of the kernel for few tokens that all devices have, and
// its time; what both kernels' plans share.
#pragma once

#include <initializer_list>
#include <limits>

#include "plan/decode/cost_model.h"
#include "plan/decode/plan.h"

namespace mxkern {

struct TimedDecodePlan {
  DecodePlan plan{};
  double time = std::numeric_limits<double>::infinity();
};

// Defined beside plan_decode. With one of these numbers of tokens a thread block.
TimedDecodePlan fastest_decode(const DecodeWork& work, std::initializer_list<int> token_sizes);

// Defined there too: for a plan whose thread blocks share multiprocessors with another kernel's.
// Where all find room at once, one on each multiprocessor leaves one place on each to the next
// kernel, whose thread blocks are to be spread as evenly.
int idle_groups(const DecodeWork& work, const DecodePlan& plan);

// Calls visitor with all plans that are looked at and have room, for measuring: of gemm_decode with
// so many tokens a thread block, and of gemm_decode_sm90.
using DecodeVisitor = void(const DecodePlan& plan, void* context);
void visit_decode(const DecodeWork& work, int tokens, DecodeVisitor* visitor, void* context);
void visit_decode_sm90(const DecodeWork& work, DecodeVisitor* visitor, void* context);

}  // namespace mxkern
