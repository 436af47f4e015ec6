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

kernels::FewShape shape_of(const Problem& problem, const FewPlan& plan) {
  return {problem.layout.bits, problem.layout.block, plan.tokens};
}

std::int64_t blocks_of(const Problem& problem, const FewPlan& plan) {
  return ceil_div(problem.layout.tiles_down(), plan.row_tiles) * problem.groups_of_tokens
         << plan.log2_ranks;
}

// Stages of both rings, as memory allows: of weights, what keeps the memory busy, since tokens wait
// behind what is more; of tokens, then, as many as there are turns.
bool fill_stages(const Problem& problem, FewPlan& plan) {
  constexpr int under_way = 96 * 1024, most_x_stages = 8;
  const DecodeLayout& layout = problem.layout;
  const kernels::FewShape shape = shape_of(problem, plan);
  const int turn_bytes = (plan.row_tiles << plan.log2_parts) * shape.tile_bytes() * shape.tenants();
  const auto turns = static_cast<int>(
      ceil_div(layout.tiles_across(), std::int64_t{1} << (plan.log2_parts + plan.log2_ranks)));
  for (plan.stages = std::clamp(under_way / turn_bytes, 2, 6); plan.stages >= 2; --plan.stages) {
    const int fewest = shape.loads_tokens() ? 0 : plan.stages > 2 ? 3 : 2;
    const int most = shape.loads_tokens() ? 0 : std::clamp(turns, fewest, most_x_stages);
    for (plan.x_stages = most; plan.x_stages >= fewest; --plan.x_stages) {
      plan.shared_bytes =
          shape.bytes(plan.row_tiles, plan.log2_parts, plan.log2_ranks, plan.stages, plan.x_stages);
      if (plan.shared_bytes > shape.room()) continue;
      return true;
    }
  }
  return false;
}

struct Rounds {
  double turns, tokens;  // tokens: bytes of a turn, of a thread block
  std::int64_t blocks, slots;
};

// Clocks of an H200, very roughly, where a multiprocessor has room for two thread blocks: fitted to
// 7461 measured plans of 188 products of 16 tokens, 8 or 2. Those that it chooses take 0.8 % longer
// than the best ones.
double cost_in_pairs(const Problem& problem, const FewPlan& plan, const Rounds& rounds) {
  // Of a tile, on a scheduler that has a warp of each.
  const double tile = 285.0 + 11.25 * plan.tokens + (problem.layout.block == 16 ? 60.0 : 0.0);
  const double two_tiles = plan.warp_tiles - 1, ranks = plan.log2_ranks;
  const double turn = 4.0 * tile * (1.0 + 0.3 * two_tiles) + rounds.tokens / 28;
  // What is around the turns. Beside a lone thread block that of the next kernel gets ready; with
  // two tiles of rows a warp it has too few warps.
  const double of_pair = 1000.0 + 1800.0 * two_tiles + 5500.0 * ranks;
  const double alone = 100.0 + 100000.0 * two_tiles + 2100.0 * ranks;
  const std::int64_t before = ceil_div(rounds.blocks, 2 * rounds.slots) - 1;
  const bool is_alone = rounds.blocks - before * 2 * rounds.slots <= rounds.slots;
  return static_cast<double>(before + 1) * rounds.turns * turn +
         static_cast<double>(before) * of_pair + (is_alone ? alone : of_pair);
}

// Where there is room for one.
double cost_alone(const Problem& problem, const FewPlan& plan, const Rounds& rounds) {
  const DecodeLayout& layout = problem.layout;
  const kernels::FewShape shape = shape_of(problem, plan);
  const int warps = plan.row_tiles << plan.log2_parts;
  // Of a tile, on one scheduler: instructions, two in three clocks, or tensor cores; of a warp, at
  // least what it waits for itself.
  const double instructions = 230.0 + 10.0 * layout.bits + 6.0 * plan.tokens;
  const double tile = std::max(1.5 * instructions, 27.0 * plan.tokens);
  const double alone = 1300.0 + 18.0 * plan.tokens;
  // Bytes of a turn: weights from memory, tokens too through the L2 cache.
  const double weights = static_cast<double>(warps * layout.tile_bytes());
  const double bytes =
      std::max(weights / 17, (weights + rounds.tokens) / (shape.loads_tokens() ? 30 : 22));
  const double turn = std::max(alone, std::max(tile * warps / 4, bytes));
  const double ends = 4500.0 + 700.0 * plan.log2_ranks;
  // Where nothing else decides: many warps.
  const double idle = 1.0 - static_cast<double>(warps) / shape.warps();
  return (rounds.turns * turn + ends) * (1.0 + 0.03 * idle) *
         static_cast<double>(ceil_div(rounds.blocks, rounds.slots));
}

double cost(const Problem& problem, const FewPlan& plan) {
  const std::int64_t tiles =
      ceil_div(problem.layout.tiles_across(), std::int64_t{1} << plan.log2_ranks);
  const Rounds rounds{static_cast<double>(ceil_div(tiles, std::int64_t{1} << plan.log2_parts)),
                      static_cast<double>(plan.tokens * 256 << plan.log2_parts),
                      blocks_of(problem, plan), cluster_slots(problem.processors, plan.log2_ranks)};
  const bool shares = shape_of(problem, plan).tenants() == 2;  // multiprocessors with others
  return shares ? cost_in_pairs(problem, plan, rounds) : cost_alone(problem, plan, rounds);
}

}  // namespace

FewPlan plan_few(Scheme scheme, std::int64_t batch, std::int64_t tokens, std::int64_t rows,
                 std::int64_t columns, int processors) {
  FewPlan best{};
  best.tokens = tokens <= 8 ? 8 : tokens <= 16 ? 16 : tokens <= 32 ? 32 : 64;
  const Problem problem{DecodeLayout::of(scheme, rows, columns),
                        batch * ceil_div(tokens, best.tokens), processors};
  const kernels::FewShape shape = shape_of(problem, best);
  double least = std::numeric_limits<double>::infinity();
  // Not all multiprocessors are in clusters of four, so that some would get two of a kernel's.
  const int most_log2_ranks = shape.tenants() > 1 ? 1 : log2_of_most_ranks;
  for (int warp_tiles = 1; warp_tiles <= shape.most_warp_tiles(); ++warp_tiles) {
    for (int log2_ranks = 0; log2_ranks <= most_log2_ranks; ++log2_ranks) {
      for (int log2_parts = 0; 1 << log2_parts <= shape.warps(); ++log2_parts) {
        for (int groups = 1; groups << log2_parts <= shape.warps(); ++groups) {
          FewPlan plan{
              best.tokens, groups * warp_tiles, warp_tiles, log2_parts, log2_ranks, 0, 0, 0, 0};
          const double clocks = cost(problem, plan);
          if (clocks < least && fill_stages(problem, plan)) least = clocks, best = plan;
        }
      }
    }
  }
  // Where all find room at once, one on each multiprocessor leaves one place on each to the next
  // kernel, whose thread blocks are to be spread as evenly.
  const std::int64_t across = problem.groups_of_tokens << best.log2_ranks;
  if (shape.tenants() > 1 && blocks_of(problem, best) < processors && processors % across == 0) {
    best.idle_groups = static_cast<int>((processors - blocks_of(problem, best)) / across);
  }
  return best;
}

}  // namespace mxkern
