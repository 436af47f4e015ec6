// plan_few.cc: how a product of few tokens is cut up.
#include "plan_few.h"

#include <algorithm>
#include <limits>

#include "mxkern/core/math.h"
#include "mxkern/kernels/few_shape.h"

namespace mxkern {
namespace {

constexpr int log2_of_most_ranks = 2;

struct Problem {
  DecodeLayout layout;
  std::int64_t groups_of_tokens;  // of all matrices: thread blocks for each group of rows
  int processors;
};

// Stages of both rings, as memory allows: of weights, what keeps the memory busy, since tokens wait
// behind what is more; of tokens, then, as many as there are turns.
bool fill_stages(const Problem& problem, FewPlan& plan) {
  constexpr int under_way = 96 * 1024, most_x_stages = 8;
  const DecodeLayout& layout = problem.layout;
  const kernels::FewShape shape{layout.bits, layout.block, plan.tokens};
  const int turn_bytes = (plan.row_tiles << plan.log2_parts) * shape.tile_bytes();
  const auto turns = static_cast<int>(
      ceil_div(layout.tiles_across(), std::int64_t{1} << (plan.log2_parts + plan.log2_ranks)));
  for (plan.stages = std::clamp(under_way / turn_bytes, 2, 6); plan.stages >= 2; --plan.stages) {
    const int fewest = plan.stages > 2 ? 3 : 2;
    for (plan.x_stages = std::clamp(turns, fewest, most_x_stages); plan.x_stages >= fewest;
         --plan.x_stages) {
      plan.shared_bytes =
          shape.bytes(plan.row_tiles, plan.log2_parts, plan.log2_ranks, plan.stages, plan.x_stages);
      if (plan.shared_bytes > kernels::FewShape::limit) continue;
      return true;
    }
  }
  return false;
}

// Clocks, roughly: rounds of thread blocks, each with a time of its own before and behind it.
double cost(const Problem& problem, const FewPlan& plan) {
  const DecodeLayout& layout = problem.layout;
  const std::int64_t blocks =
      ceil_div(layout.tiles_down(), plan.row_tiles) * problem.groups_of_tokens << plan.log2_ranks;
  const std::int64_t tiles = ceil_div(layout.tiles_across(), std::int64_t{1} << plan.log2_ranks);
  const std::int64_t turns = ceil_div(tiles, std::int64_t{1} << plan.log2_parts);
  const int warps = plan.row_tiles << plan.log2_parts;
  // Of a tile, on one scheduler: instructions, two in three clocks, or tensor cores; of a warp, at
  // least what it waits for itself.
  const double instructions = 230.0 + 10.0 * layout.bits + 6.0 * plan.tokens;
  const double tile = std::max(1.5 * instructions, 27.0 * plan.tokens);
  const double turn = std::max(tile * warps / 4, 1300.0 + 18.0 * plan.tokens);
  // Bytes of a turn: weights from memory, tokens too through the L2 cache.
  const double weights = static_cast<double>(warps * layout.tile_bytes());
  const double tokens = static_cast<double>(plan.tokens * 256 << plan.log2_parts);
  const double bytes = std::max(weights / 17, (weights + tokens) / 22);
  const double round =
      static_cast<double>(turns) * std::max(turn, bytes) + 4500.0 + 700.0 * plan.log2_ranks;
  // Where nothing else decides: many warps.
  const double idle = 1.0 - static_cast<double>(warps) / kernels::FewShape::warps(plan.tokens);
  return round * (1.0 + 0.03 * idle) *
         static_cast<double>(ceil_div(blocks, cluster_slots(problem.processors, plan.log2_ranks)));
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
        const double clocks = cost(problem, plan);
        if (clocks < least && fill_stages(problem, plan)) least = clocks, best = plan;
      }
    }
  }
  return best;
}

}  // namespace mxkern
