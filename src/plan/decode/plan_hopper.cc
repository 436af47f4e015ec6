// plan/decode/plan_hopper.cc: how a product of tens of tokens is cut up for Hopper's tensor cores.
#include <algorithm>
#include <initializer_list>

#include "plan/decode/search.h"
#include "plan/decode/cost_model.h"
#include "mxkern/core/math.h"
#include "mxkern/kernels/decode/hopper/shared_memory.h"
#include "plan/decode/plan.h"
#include "tuning/h200.h"

namespace mxkern {
namespace {

using kernels::DecodeShape;
using kernels::DecodeSm90Shape;

constexpr int log2_of_most_ranks = 2;

// How many stages there are at most: of weights, and of tokens, at least twice as many as parts
// take turns with them, so that each stage is always the same part's. What is asked for at once
// delays what is needed first, so that fewer are often faster.
struct Stages {
  int weights, tokens;

  static Stages most(const DecodeLayout& layout, const DecodePlan& plan) {
    const int parts = 1 << plan.log2_parts;
    const bool has_four = plan.row_tiles << plan.log2_parts == 4 * DecodeSm90Shape::group_tiles;
    const bool has_few_tokens = plan.tokens <= 64, is_wide = layout.bits > 4;
    if (DecodeSm90Shape::has_pairs(plan.tokens, plan.row_tiles, plan.log2_parts)) {
      const bool has_fewest = plan.tokens == 32;
      if (parts > 1) return {3, has_fewest ? 6 : 4};
      return {has_fewest ? 4 : 3, has_fewest ? 4 : 2};
    }
    const int weights = has_four && (parts > 1 || (is_wide && !has_few_tokens)) ? 3 : 4;
    if (parts > 1) return {weights, parts == 2 && has_few_tokens ? 6 : 2 * parts};
    return {weights, (has_few_tokens && is_wide) || (plan.tokens == 96 && !has_four) ? 3 : 2};
  }
};

// As memory allows: first stages of tokens, then of weights.
bool fill_stages(const DecodeLayout& layout, DecodePlan& plan) {
  const Stages most = Stages::most(layout, plan);
  const DecodeShape shape{layout.bits, layout.block, plan.tokens};
  const int parts = 1 << plan.log2_parts;
  const auto fits = [&] {
    plan.shared_bytes = DecodeSm90Shape::bytes(shape, plan.row_tiles, plan.log2_parts,
                                               plan.log2_ranks, plan.stages, plan.x_stages);
    return plan.shared_bytes <= DecodeSm90Shape::room(plan.tokens, plan.row_tiles, plan.log2_parts);
  };
  for (const int fewest : {3, 2}) {
    for (plan.x_stages = most.tokens; plan.x_stages >= 2 * parts; plan.x_stages -= parts) {
      for (plan.stages = most.weights; plan.stages >= fewest; --plan.stages) {
        if (fits()) return true;
      }
    }
  }
  return false;
}

bool has_pairs(const DecodePlan& plan) {
  return DecodeSm90Shape::has_pairs(plan.tokens, plan.row_tiles, plan.log2_parts);
}

DecodePlan few_sm90_without_stages(int tokens, int warpgroups, int log2_parts, int log2_ranks) {
  DecodePlan plan{};
  plan.tokens = tokens;
  plan.row_tiles = (warpgroups >> log2_parts) * DecodeSm90Shape::group_tiles;
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
  return size <= decode_sm90_group(tokens) && (size == 32 || size < 2 * tokens);
}

// Calls visitor with each plan that is worth looking at, without its stages.
template <class Visitor>
void for_each_candidate(const DecodeWork& work, Visitor&& visitor) {
  for (const int size : DecodeSm90Shape::token_sizes) {
    if (!is_candidate(size, work.tokens)) continue;
    const int most = DecodeSm90Shape::most_warpgroups(size);
    for (int warpgroups = DecodeSm90Shape::fewest_warpgroups; warpgroups <= most; warpgroups += 2) {
      for (int log2_ranks = 0; log2_ranks <= log2_of_most_ranks; ++log2_ranks) {
        for (int log2_parts = 0; 1 << log2_parts <= warpgroups; ++log2_parts) {
          const DecodePlan plan = few_sm90_without_stages(size, warpgroups, log2_parts, log2_ranks);
          // Not all multiprocessors are in clusters of four, so that some would get two of a
          // kernel's.
          if (!has_pairs(plan) || log2_ranks < log2_of_most_ranks) visitor(plan);
        }
      }
    }
  }
}

// Whether memory has room for its stages.
bool fill(const DecodeWork& work, DecodePlan& plan) {
  if (!fill_stages(work.layout, plan)) return false;
  plan.idle_groups = has_pairs(plan) ? idle_groups(work, plan) : 0;
  return true;
}

// The fastest of gemm_decode_sm90, if it is faster than `best`.
void improve(const DecodeWork& work, TimedDecodePlan& best) {
  for_each_candidate(work, [&](DecodePlan plan) {
    const double time = decode_sm90_time(work, plan);
    if (time < best.time && fill(work, plan)) best = {plan, time};
  });
}

}  // namespace

void visit_decode_sm90(const DecodeWork& work, DecodeVisitor* visitor, void* context) {
  for_each_candidate(work, [&](DecodePlan plan) {
    if (fill(work, plan)) visitor(plan, context);
  });
}

DecodePlan decode_sm90_plan(Scheme scheme, int tokens, int warpgroups, int log2_parts,
                            int log2_ranks) {
  DecodePlan plan = few_sm90_without_stages(tokens, warpgroups, log2_parts, log2_ranks);
  fill_stages(DecodeLayout::of(scheme, 0, 0), plan);
  return plan;
}

int folded_size(std::int64_t rows) {
  for (const int size : {8, 16, 32, 64}) {
    if (rows <= size) return size;
  }
  return 128;
}

// By rounds of thread blocks: a turn of a tile takes about as long in each, and the end as long as
// so many turns.
DecodePlan plan_decode_folded(Scheme scheme, std::int64_t batch, std::int64_t tokens,
                              std::int64_t rows, std::int64_t columns, int processors) {
  namespace tuned = tuning::h200::few;
  const DecodeWork work(scheme, batch, tokens, rows, columns, processors);
  const int size = folded_size(tokens), warpgroups = folded_warpgroups(size);
  TimedDecodePlan best;
  for (int log2_ranks = 0; log2_ranks <= log2_of_most_ranks; ++log2_ranks) {
    for (int log2_parts = 0; 1 << log2_parts <= warpgroups; ++log2_parts) {
      DecodePlan plan = few_sm90_without_stages(size, warpgroups, log2_parts, log2_ranks);
      if (!fill_stages(work.layout, plan)) continue;
      const int tenants = DecodeSm90Shape::has_pairs(size, plan.row_tiles, log2_parts) ? 2 : 1;
      const std::int64_t slots = cluster_slots(processors, log2_ranks) * tenants;
      const std::int64_t rounds = ceil_div(work.blocks(plan), slots);
      const auto turns = static_cast<double>(
          ceil_div(work.layout.tiles_across(), std::int64_t{1} << (log2_ranks + log2_parts)));
      const double end = tuned::folded_end + tuned::folded_rank * log2_ranks;
      const double time = static_cast<double>(rounds) * (turns + end);
      if (time < best.time) best = {plan, time};
    }
  }
  return best.plan;
}

int decode_sm90_group(std::int64_t tokens) {
  const std::int64_t groups = ceil_div(tokens, DecodeSm90Shape::most_tokens);
  const std::int64_t each = ceil_div(tokens, std::max<std::int64_t>(groups, 1));
  for (const int size : DecodeSm90Shape::token_sizes) {
    if (each <= size) return size;
  }
  return DecodeSm90Shape::most_tokens;
}

DecodePlan plan_decode_sm90(Scheme scheme, std::int64_t batch, std::int64_t tokens,
                            std::int64_t rows, std::int64_t columns, int processors,
                            DType x_dtype) {
  DecodeWork work(scheme, batch, tokens, rows, columns, processors);
  work.has_halves = x_dtype == DType::float16;
  TimedDecodePlan best;
  improve(work, best);
  // gemm_decode scales sums of halves, which is slower whatever the weights.
  if (x_dtype == DType::float16) return best.plan;
  // With tokens for more than one thread block of theirs, those of gemm_decode have to read weights
  // more than once.
  const bool is_small = std::uint64_t{work.down} * work.across < tuning::h200::few::small_tiles;
  if (tokens > 32) return best.plan;
  const TimedDecodePlan few =
      is_small ? fastest_decode(work, {16, 32}) : fastest_decode(work, {32});
  return few.time < best.time ? few.plan : best.plan;
}

}  // namespace mxkern
