// plan_few_sm90.cc: how a product of tens of tokens is cut up for Hopper's tensor cores.
#include <algorithm>
#include <initializer_list>
#include <limits>

#include "mxkern/core/math.h"
#include "mxkern/kernels/few_sm90_shape.h"
#include "mxkern/kernels/staged_sm90_shape.h"
#include "plan_few.h"

namespace mxkern {
namespace {

using kernels::FewShape;
using kernels::FewSm90Shape;
using kernels::StagedSm90Shape;

constexpr int log2_of_most_ranks = 2;

struct Problem {
  DecodeLayout layout;
  std::int64_t batch, tokens;
  int processors;
};

// Stages as memory allows: first of tokens, twice as many as parts take turns with them, so that
// each stage is always the same part's; then of weights.
bool fill_stages(const Problem& problem, FewPlan& plan) {
  // The first tokens wait behind the weights that are under way.
  const int most_stages = plan.tokens <= 64 ? 4 : 8;
  constexpr int most_x_stages = 4;
  const DecodeLayout& layout = problem.layout;
  const FewShape shape{layout.bits, layout.block, plan.tokens};
  const int parts = 1 << plan.log2_parts;
  const auto fits = [&] {
    plan.shared_bytes = FewSm90Shape::bytes(shape, plan.row_tiles, plan.log2_parts, plan.log2_ranks,
                                            plan.stages, plan.x_stages);
    return plan.shared_bytes <= FewSm90Shape::limit;
  };
  for (const int fewest : {4, 2}) {
    for (plan.x_stages = std::max(most_x_stages, 2 * parts); plan.x_stages >= 2 * parts;
         plan.x_stages -= parts) {
      for (plan.stages = most_stages; plan.stages >= fewest; --plan.stages) {
        if (fits()) return true;
      }
    }
  }
  return false;
}

// Clocks, roughly, as measured on an H200.
double cost(const Problem& problem, const FewPlan& plan) {
  const DecodeLayout& layout = problem.layout;
  const std::int64_t blocks = ceil_div(layout.tiles_down(), plan.row_tiles) * problem.batch *
                                  ceil_div(problem.tokens, plan.tokens)
                              << plan.log2_ranks;
  const std::int64_t tiles = ceil_div(layout.tiles_across(), std::int64_t{1} << plan.log2_ranks);
  const auto turns = static_cast<double>(ceil_div(tiles, std::int64_t{1} << plan.log2_parts));
  // Of a turn: decoding and tensor cores, which share the registers' ports, and what it takes to
  // ask for copies, and tokens on their way through the L2 cache; or weights from memory.
  const double work =
      FewSm90Shape::warpgroups(plan.tokens) * (320.0 + 3.25 * plan.tokens) + 100.0 * plan.row_tiles;
  const double weights = (plan.row_tiles << plan.log2_parts) * layout.tile_bytes();
  // With 96 and 128 tokens warpgroups that take turns along K hardly wait for these.
  const bool hides_tokens = plan.tokens == 96 || plan.tokens == 128;
  const double tokens = (hides_tokens ? 213.0 : 4.25 * plan.tokens) * (1 << plan.log2_parts);
  const double turn = std::max(work + tokens, weights / 18.0);
  const double round = turns * turn + 6000.0 + 1000.0 * plan.log2_ranks;
  return 4500.0 + round * static_cast<double>(
                              ceil_div(blocks, cluster_slots(problem.processors, plan.log2_ranks)));
}

// In the same unit. A step takes as long whatever part of its tokens exists, and hardly less with
// fewer rows; scales of NVFP4 take more instructions.
double staged_cost(const Problem& problem, const FewPlan& plan) {
  const DecodeLayout& layout = problem.layout;
  const std::int64_t blocks = ceil_div(layout.tiles_down(), plan.row_tiles) * problem.batch
                              << plan.log2_ranks;
  const std::int64_t steps =
      2 * ceil_div(layout.tiles_across(), std::int64_t{1} << plan.log2_ranks);
  const double step = 1780.0 + 3.0 * plan.row_tiles + (layout.block == 16 ? 200.0 : 0.0);
  const double round = step * static_cast<double>(steps) + 9000.0;
  return 5600.0 + 3700.0 * plan.log2_ranks +
         round * static_cast<double>(
                     ceil_div(blocks, cluster_slots(problem.processors, plan.log2_ranks)));
}

// Where it is faster than `best`, which costs `least`: with as many tokens as a thread block takes,
// and codes of 4 bits. More bits leave shared memory less time.
FewPlan staged_or(Scheme scheme, const Problem& problem, FewPlan best, double least) {
  constexpr int tokens = StagedSm90Shape::tokens;
  if (problem.layout.bits != 4 || problem.tokens <= tokens / 2 || problem.tokens > tokens) {
    return best;
  }
  for (const int row_tiles : StagedSm90Shape::row_sizes) {
    for (int log2_ranks = 0; log2_ranks <= log2_of_most_ranks; ++log2_ranks) {
      const FewPlan plan = staged_plan(scheme, row_tiles, log2_ranks);
      const double clocks = staged_cost(problem, plan);
      if (clocks < least) least = clocks, best = plan;
    }
  }
  return best;
}

}  // namespace

FewPlan staged_plan(Scheme scheme, int row_tiles, int log2_ranks) {
  const DecodeLayout layout = DecodeLayout::of(scheme, 0, 0);
  const FewShape shape{layout.bits, layout.block, StagedSm90Shape::tokens};
  const int stages = StagedSm90Shape::stages(shape, row_tiles);
  FewPlan plan{shape.tokens,
               row_tiles,
               0,
               0,
               log2_ranks,
               stages,
               StagedSm90Shape::x_stages,
               StagedSm90Shape::bytes(shape, row_tiles, stages),
               0};
  plan.is_staged = true;
  return plan;
}

int few_sm90_group(std::int64_t tokens) {
  const std::int64_t groups = ceil_div(tokens, FewSm90Shape::most_tokens);
  const std::int64_t each = ceil_div(tokens, std::max<std::int64_t>(groups, 1));
  for (const int size : FewSm90Shape::token_sizes) {
    if (each <= size) return size;
  }
  return FewSm90Shape::most_tokens;
}

std::int64_t arranged_bytes(std::int64_t batch, std::int64_t tokens, std::int64_t columns) {
  const int group = few_sm90_group(tokens);
  return batch * round_up(tokens, group) * round_up(columns, DecodeLayout::tile_columns) * 2;
}

std::int64_t arranged_for_few(DType x_dtype, std::int64_t batch, std::int64_t tokens,
                              std::int64_t all_tokens, std::int64_t rows, std::int64_t columns) {
  std::int64_t bytes = 0;
  if (may_arrange_few_sm90(tokens) && prefers_few_sm90(x_dtype, tokens, rows, columns)) {
    bytes = arranged_bytes(batch, tokens, columns);
  }
  if (may_arrange_few_sm90(all_tokens) && prefers_few_sm90(x_dtype, all_tokens, rows, columns)) {
    bytes = std::max(bytes, arranged_bytes(1, all_tokens, columns));
  }
  return bytes;
}

FewPlan plan_few_sm90(Scheme scheme, std::int64_t batch, std::int64_t tokens, std::int64_t rows,
                      std::int64_t columns, int processors, DType x_dtype) {
  const Problem problem{DecodeLayout::of(scheme, rows, columns), batch, tokens, processors};
  FewPlan best{};
  double least = std::numeric_limits<double>::infinity();
  // In groups as large as can be, which read the weights least often, or half as large. The memory
  // for arranged tokens is enough for both.
  const int largest = few_sm90_group(tokens);
  for (const int group : FewSm90Shape::token_sizes) {
    if (group != largest && 2 * group != largest) continue;
    const int warpgroups = FewSm90Shape::warpgroups(group);
    for (int log2_ranks = 0; log2_ranks <= log2_of_most_ranks; ++log2_ranks) {
      for (int log2_parts = 0; 1 << log2_parts <= warpgroups; ++log2_parts) {
        const int row_tiles = (warpgroups >> log2_parts) * FewSm90Shape::group_tiles;
        FewPlan plan{group, row_tiles, 0, log2_parts, log2_ranks, 0, 0, 0, 0};
        const double clocks = cost(problem, plan);
        if (clocks < least && fill_stages(problem, plan)) least = clocks, best = plan;
      }
    }
  }
  // Shared memory carries tokens three times where thread blocks put them in order themselves. That
  // costs less than the wait for another kernel up to 32 tokens, and up to 64 where a thread block
  // has few turns with two parts of them.
  const std::int64_t turns = problem.layout.tiles_across() >> (best.log2_parts + best.log2_ranks);
  const bool is_short = best.log2_parts == 1 && best.log2_ranks == 1 && turns <= 20;
  best.arranges = tokens > 64 || (tokens > 32 && !is_short);
  // Halves take more instructions to decode than those few warps have time for.
  return x_dtype == DType::float16 ? best : staged_or(scheme, problem, best, least);
}

}  // namespace mxkern
