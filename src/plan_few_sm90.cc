// plan_few_sm90.cc: how a product of tens of tokens is cut up for Hopper's tensor cores.
#include <algorithm>
#include <initializer_list>

#include "fastest_few.h"
#include "few_times.h"
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
constexpr std::uint32_t small_tiles = 1 << 13;  // weights of 32 million elements

// How many stages there are at most: of weights, and of tokens, at least twice as many as parts
// take turns with them, so that each stage is always the same part's. What is asked for at once
// delays what is needed first, so that fewer are often faster.
struct Stages {
  int weights, tokens;

  static Stages most(const DecodeLayout& layout, const FewPlan& plan) {
    const int parts = 1 << plan.log2_parts, tokens = std::max(4, 2 * parts);
    if (plan.tokens <= 64) return {layout.bits == 8 && parts > 1 ? 3 : 4, tokens};
    if (parts > 1) return {6, tokens};
    return {4, layout.bits > 4 && plan.tokens == 96 ? 3 : 2};
  }
};

// As memory allows: first stages of tokens, then of weights.
bool fill_stages(const DecodeLayout& layout, FewPlan& plan) {
  const Stages most = Stages::most(layout, plan);
  const FewShape shape{layout.bits, layout.block, plan.tokens};
  const int parts = 1 << plan.log2_parts;
  const auto fits = [&] {
    plan.shared_bytes = FewSm90Shape::bytes(shape, plan.row_tiles, plan.log2_parts, plan.log2_ranks,
                                            plan.stages, plan.x_stages);
    return plan.shared_bytes <= FewSm90Shape::limit;
  };
  for (const int fewest : {std::min(4, most.weights), 2}) {
    for (plan.x_stages = most.tokens; plan.x_stages >= 2 * parts; plan.x_stages -= parts) {
      for (plan.stages = most.weights; plan.stages >= fewest; --plan.stages) {
        if (fits()) return true;
      }
    }
  }
  return false;
}

FewPlan few_sm90_without_stages(int tokens, int log2_parts, int log2_ranks) {
  const int warpgroups = FewSm90Shape::warpgroups(tokens) >> log2_parts;
  FewPlan plan{};
  plan.tokens = tokens;
  plan.row_tiles = warpgroups * FewSm90Shape::group_tiles;
  plan.log2_parts = log2_parts;
  plan.log2_ranks = log2_ranks;
  plan.on_sm90 = true;
  return plan;
}

// Whether `tokens` of a thread block are a size worth looking at. Smaller groups read the weights
// more often, larger ones multiply tokens that do not exist.
bool is_candidate(int size, std::int64_t tokens) {
  if (size < 128 && tokens > 8 * size) return false;
  if (size <= 64 && tokens > 4 * size) return false;
  return size <= few_sm90_group(tokens) && (size == 32 || size < 2 * tokens);
}

// The fastest of gemm_few_sm90, if it is faster than `best`.
void improve(const FewWork& work, TimedFewPlan& best) {
  for (const int size : FewSm90Shape::token_sizes) {
    if (!is_candidate(size, work.tokens)) continue;
    for (int log2_ranks = 0; log2_ranks <= log2_of_most_ranks; ++log2_ranks) {
      for (int log2_parts = 0; 1 << log2_parts <= FewSm90Shape::warpgroups(size); ++log2_parts) {
        FewPlan plan = few_sm90_without_stages(size, log2_parts, log2_ranks);
        // Shared memory carries tokens three times where thread blocks put them in order
        // themselves, and has no room for more than 64. Up to 32 that always costs less than the
        // wait for another kernel.
        for (const bool arranges : {false, true}) {
          if (arranges ? size == 32 : size > 64 || (log2_parts > 1 && size > 32)) continue;
          plan.arranges = arranges;
          plan.stages = 0;
          if (few_sm90_time(work, plan) >= best.time || !fill_stages(work.layout, plan)) continue;
          const double time = few_sm90_time(work, plan);
          if (time < best.time) best = {plan, time};
        }
      }
    }
  }
}

// With as many tokens as a thread block takes, and codes of 4 bits. More bits leave shared memory
// less time.
void improve_staged(Scheme scheme, const FewWork& work, TimedFewPlan& best) {
  constexpr int tokens = StagedSm90Shape::tokens;
  if (work.layout.bits != 4 || work.tokens <= tokens / 2 || work.tokens > tokens) return;
  for (const int row_tiles : StagedSm90Shape::row_sizes) {
    for (int log2_ranks = 0; log2_ranks <= log2_of_most_ranks; ++log2_ranks) {
      const FewPlan plan = staged_plan(scheme, row_tiles, log2_ranks);
      const double time = staged_sm90_time(work, plan);
      if (time < best.time) best = {plan, time};
    }
  }
}

}  // namespace

FewPlan few_sm90_plan(Scheme scheme, int tokens, int log2_parts, int log2_ranks, bool arranges) {
  FewPlan plan = few_sm90_without_stages(tokens, log2_parts, log2_ranks);
  plan.arranges = arranges;
  fill_stages(DecodeLayout::of(scheme, 0, 0), plan);
  return plan;
}

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
  plan.on_sm90 = plan.is_staged = true;
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
  std::int64_t most = 0;
  for (const int size : FewSm90Shape::token_sizes) {
    if (is_candidate(size, tokens)) most = std::max(most, round_up(tokens, std::int64_t{size}));
  }
  return batch * most * round_up(columns, DecodeLayout::tile_columns) * 2;
}

std::int64_t arranged_for_few(DType x_dtype, std::int64_t batch, std::int64_t tokens,
                              std::int64_t all_tokens, std::int64_t columns) {
  std::int64_t bytes = 0;
  if (may_arrange_few_sm90(x_dtype, tokens)) bytes = arranged_bytes(batch, tokens, columns);
  if (may_arrange_few_sm90(x_dtype, all_tokens)) {
    bytes = std::max(bytes, arranged_bytes(1, all_tokens, columns));
  }
  return bytes;
}

FewPlan plan_few_sm90(Scheme scheme, std::int64_t batch, std::int64_t tokens, std::int64_t rows,
                      std::int64_t columns, int processors, DType x_dtype) {
  const FewWork work(scheme, batch, tokens, rows, columns, processors);
  TimedFewPlan best;
  improve(work, best);
  // Halves take more instructions to decode than those few warps of the staged kernel have time
  // for, and gemm_few scales their sums, which is slower whatever the weights.
  if (x_dtype == DType::float16) return best.plan;
  improve_staged(scheme, work, best);
  // With tokens for more than one thread block of theirs, those of gemm_few have to read weights
  // more than once.
  const bool is_small = std::uint64_t{work.down} * work.across < small_tiles;
  if (tokens > (is_small ? 48 : 32)) return best.plan;
  const TimedFewPlan few = tokens > 32 ? fastest_few(work, {16})
                           : is_small  ? fastest_few(work, {16, 32})
                                       : fastest_few(work, {32});
  return few.time < best.time ? few.plan : best.plan;
}

}  // namespace mxkern
