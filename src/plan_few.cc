// plan_few.cc: how a product of few tokens is cut up.
#include "plan_few.h"

#include <algorithm>
#include <limits>

#include "mxkern/core/math.h"
#include "mxkern/kernels/few_shape.h"

namespace mxkern {
namespace {

constexpr int log2_of_most_ranks = 1;  // clusters of two fit any number of multiprocessors

struct Problem {
  DecodeLayout layout;
  std::int64_t groups_of_tokens;  // of all matrices: thread blocks for each group of rows
  int processors;
};

// Stages of both rings, as many as memory allows.
bool fill_stages(const DecodeLayout& layout, FewPlan& plan) {
  const kernels::FewShape shape{layout.bits, layout.block, plan.tokens};
  for (plan.x_stages = 3; plan.x_stages >= 2; --plan.x_stages) {
    for (plan.stages = 6; plan.stages >= 2; --plan.stages) {
      plan.shared_bytes =
          shape.bytes(plan.row_tiles, plan.log2_parts, plan.log2_ranks, plan.stages, plan.x_stages);
      if (plan.shared_bytes <= kernels::FewShape::limit) return true;
    }
  }
  return false;
}

// Clocks, roughly: rounds of thread blocks, whose warps share four schedulers, and what a round
// takes at least.
double cost(const Problem& problem, const FewPlan& plan) {
  const DecodeLayout& layout = problem.layout;
  const std::int64_t blocks =
      ceil_div(layout.tiles_down(), plan.row_tiles) * problem.groups_of_tokens << plan.log2_ranks;
  const std::int64_t tiles = ceil_div(layout.tiles_across(), std::int64_t{1} << plan.log2_ranks);
  const std::int64_t turns = ceil_div(tiles, std::int64_t{1} << plan.log2_parts);
  const int warps = plan.row_tiles << plan.log2_parts;
  // Instructions of a tile, and clocks until a warp is through with one.
  const double instructions = 30.0 * layout.bits + 190.0 + 8.0 * plan.tokens;
  const double turn = std::max(2.2 * instructions, 1.15 * instructions * ceil_div(warps, 4));
  // Tokens that a thread block reads, from the L2 cache.
  const double tokens = static_cast<double>(turns << plan.log2_parts) * plan.tokens * 256 / 40;
  const double round = std::max(static_cast<double>(turns) * turn, tokens) + 3500.0 +
                       (plan.log2_ranks > 0 ? 800.0 : 0.0);
  return round * static_cast<double>(ceil_div(blocks, problem.processors));
}

}  // namespace

FewPlan plan_few(Scheme scheme, std::int64_t batch, std::int64_t tokens, std::int64_t rows,
                 std::int64_t columns, int processors) {
  FewPlan best{};
  best.tokens = tokens <= 8 ? 8 : tokens <= 16 ? 16 : tokens <= 32 ? 32 : 64;
  const Problem problem{DecodeLayout::of(scheme, rows, columns),
                        batch * ceil_div(tokens, best.tokens), processors};
  const int most_warps = kernels::FewShape::warps(best.tokens);
  double least = std::numeric_limits<double>::infinity();
  for (int log2_ranks = 0; log2_ranks <= log2_of_most_ranks; ++log2_ranks) {
    for (int log2_parts = 0; 1 << log2_parts <= most_warps; ++log2_parts) {
      for (int row_tiles = 1; row_tiles << log2_parts <= most_warps; ++row_tiles) {
        FewPlan plan{best.tokens, row_tiles, log2_parts, log2_ranks, 0, 0, 0};
        if (!fill_stages(problem.layout, plan)) continue;
        const double clocks = cost(problem, plan);
        if (clocks < least) least = clocks, best = plan;
      }
    }
  }
  return best;
}

}  // namespace mxkern
