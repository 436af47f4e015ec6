// plan/decode/plan.cc: how a product of few tokens is cut up.
#include "plan/decode/plan.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "plan/decode/search.h"
#include "plan/decode/cost_model.h"
#include "mxkern/core/math.h"
#include "mxkern/kernels/decode/shared_memory.h"

namespace mxkern {
namespace {

constexpr int log2_of_most_ranks = 2;

kernels::DecodeShape shape_of(const DecodeLayout& layout, const DecodePlan& plan) {
  return {layout.bits, layout.block, plan.tokens};
}

// Stages of both rings, as memory allows: what keeps the memory busy, since tokens wait behind what
// is more.
bool fill_stages(const DecodeLayout& layout, DecodePlan& plan) {
  constexpr int under_way = 96 * 1024;
  const bool shares = plan.x_stages > 0;
  const kernels::DecodeShape shape = shape_of(layout, plan);
  const int turn_bytes = (plan.row_tiles << plan.log2_parts) * shape.tile_bytes() * shape.tenants();
  plan.stages = shape.stages() > 0 ? shape.stages() : std::clamp(under_way / turn_bytes, 2, 3);
  for (; plan.stages >= 2; --plan.stages) {
    plan.x_stages = shares ? plan.stages << plan.log2_parts : 0;
    plan.shared_bytes = shape.bytes(plan.row_tiles, plan.warp_tiles, plan.log2_parts,
                                    plan.log2_ranks, plan.stages, plan.x_stages);
    if (plan.shared_bytes <= shape.room()) return true;
  }
  return false;
}

// Calls visitor with each plan of so many tokens a thread block that is worth looking at, without
// its stages.
template <class Visitor>
void for_each_candidate(const DecodeWork& work, int tokens, Visitor&& visitor) {
  DecodePlan plan{};
  plan.tokens = tokens;
  const kernels::DecodeShape shape = shape_of(work.layout, plan);
  // Not all multiprocessors are in clusters of four, so that some would get two of a kernel's.
  const int most_log2_ranks = shape.tenants() > 1 ? 1 : log2_of_most_ranks;
  // Warps: fewer were never faster.
  const int fewest = tokens <= 16 ? shape.warps() / 2 : shape.warps() * 3 / 4;
  // To its second tile, a row of tiles further on, a warp counts in 31 bits.
  const bool has_long_rows = std::int64_t{work.across} * shape.tile_bytes() >= std::int64_t{1}
                                                                                   << 31;
  const int most_warp_tiles = has_long_rows ? 1 : shape.most_warp_tiles();
  for (plan.warp_tiles = 1; plan.warp_tiles <= most_warp_tiles; ++plan.warp_tiles) {
    for (plan.log2_ranks = 0; plan.log2_ranks <= most_log2_ranks; ++plan.log2_ranks) {
      for (plan.log2_parts = 0; 1 << plan.log2_parts <= shape.warps(); ++plan.log2_parts) {
        const int most = shape.warps() >> plan.log2_parts;
        for (int groups = ceil_div(fewest, 1 << plan.log2_parts); groups <= most; ++groups) {
          plan.row_tiles = groups * plan.warp_tiles;
          for (const bool shares : {false, true}) {
            // Nothing to share, unless there is no room for anything else.
            if (shares ? groups == 1 && shape.may_keep(plan.warp_tiles)
                       : !shape.may_keep(plan.warp_tiles)) {
              continue;
            }
            plan.x_stages = shares ? 1 : 0;
            visitor(plan);
          }
        }
      }
    }
  }
}

// The fastest with so many tokens a thread block, if it is faster than `best`.
void improve(const DecodeWork& work, int tokens, TimedDecodePlan& best) {
  for_each_candidate(work, tokens, [&](const DecodePlan& plan) {
    const double time = decode_time(work, plan);
    if (time >= best.time) return;
    DecodePlan filled = plan;
    if (fill_stages(work.layout, filled)) best = {filled, time};
  });
}

// For a plan with stages.
void put_idle_groups(const DecodeWork& work, DecodePlan& plan) {
  if (shape_of(work.layout, plan).tenants() > 1) plan.idle_groups = idle_groups(work, plan);
}

}  // namespace

int idle_groups(const DecodeWork& work, const DecodePlan& plan) {
  const std::int64_t across = work.groups_of_tokens(plan) << plan.log2_ranks;
  const std::int64_t blocks = work.blocks(plan);
  if (blocks >= work.processors || !work.fills_processors(plan)) return 0;
  return static_cast<int>((work.processors - blocks) / across);
}

TimedDecodePlan fastest_decode(const DecodeWork& work, std::initializer_list<int> token_sizes) {
  TimedDecodePlan best;
  for (const int size : token_sizes) improve(work, size, best);
  if (!(best.time < std::numeric_limits<double>::infinity())) return best;
  put_idle_groups(work, best.plan);
  return best;
}

void visit_decode(const DecodeWork& work, int tokens, DecodeVisitor* visitor, void* context) {
  for_each_candidate(work, tokens, [&](DecodePlan plan) {
    if (!fill_stages(work.layout, plan)) return;
    put_idle_groups(work, plan);
    visitor(plan, context);
  });
}

DecodePlan decode_groups_plan(Scheme scheme, int tokens, int row_tiles, int log2_parts) {
  DecodePlan plan{};
  plan.tokens = tokens;
  plan.row_tiles = row_tiles;
  plan.warp_tiles = 1;
  plan.log2_parts = log2_parts;
  const kernels::DecodeShape shape = shape_of(DecodeLayout::of(scheme, 0, 0), plan);
  plan.shared_bytes = shape.bytes_of_groups(row_tiles << log2_parts);
  plan.stages = plan.shared_bytes <= shape.room() ? shape.stages_of_groups() : 0;
  return plan;
}

DecodePlan plan_decode(Scheme scheme, std::int64_t batch, std::int64_t tokens, std::int64_t rows,
                       std::int64_t columns, int processors) {
  const DecodeWork work(scheme, batch, tokens, rows, columns, processors);
  if (tokens <= 8) return fastest_decode(work, {8}).plan;
  if (tokens <= 16) return fastest_decode(work, {16}).plan;
  if (tokens <= 32) return fastest_decode(work, {16, 32}).plan;
  return fastest_decode(work, {64}).plan;
}

}  // namespace mxkern
