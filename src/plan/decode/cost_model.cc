// plan/decode/cost_model.cc: how long a product of few tokens takes by a plan, as measured on an
// H200.
//
// There are rounds of thread blocks, each an end and turns of 128 columns for each part of K; and
// memory has to bring the weights. Microseconds.
#include "plan/decode/cost_model.h"

#include <algorithm>
#include <cmath>

#include "mxkern/core/math.h"
#include "mxkern/kernels/decode/shared_memory.h"
#include "mxkern/kernels/decode/hopper/shared_memory.h"
#include "tuning/h200.h"

namespace mxkern {
namespace {

namespace tuned = tuning::h200;
namespace few = tuning::h200::few;
using kernels::DecodeShape;
using kernels::DecodeSm90Shape;

// Of things that happen side by side: little more than the longest takes.
double together(double a, double b, double c = 0.0) {
  a *= a, b *= b, c *= c;
  return std::sqrt(std::sqrt(a * a + b * b + c * c));
}

// Of the thread blocks' warps, or of their warpgroups.
double turns_of(const DecodeWork& work, const DecodePlan& plan) {
  const std::uint32_t tiles = (work.across + (1u << plan.log2_ranks) - 1) >> plan.log2_ranks;
  return (tiles + (1u << plan.log2_parts) - 1) >> plan.log2_parts;
}

std::uint32_t rounds_of(std::int64_t blocks, std::int64_t slots) {
  if (blocks <= slots) return 1;
  const auto few = static_cast<std::uint32_t>(std::min<std::int64_t>(blocks, 1 << 30));
  return ceil_div(few, static_cast<std::uint32_t>(slots));
}

// What a scheme adds to MXFP4.
double of_scheme(const tuned::OfScheme& added, const DecodeWork& work) {
  if (work.layout.bits == 4) return work.has_float_scales ? added.nvfp4 : 0.0;
  return work.layout.bits == 6 ? added.six_bits : added.eight_bits;
}

// Whether the last thread blocks have a multiprocessor each, where it has room for two. Without
// groups of rows that do not exist some share one while others idle.
bool is_last_alone(const DecodeWork& work, const DecodePlan& plan, std::int64_t before,
                   std::int64_t slots) {
  const std::int64_t left = work.blocks(plan) - before * 2 * slots;
  return left <= slots && (before > 0 || left == slots || work.fills_processors(plan));
}

// The next product's thread blocks find room beside those of this one, all of them.
bool leaves_half(const DecodeWork& work, std::int64_t blocks) {
  return 2 * blocks <= work.processors;
}

// Kilobytes of tokens in a turn of a thread block: of each part of K, or for each warp.
double kilobytes_of_tokens(const DecodePlan& plan, int warps) {
  return plan.tokens / 4.0 * (plan.x_stages > 0 ? 1 << plan.log2_parts : warps);
}

// Whether there are several groups of tokens for the same weights, and so more thread blocks.
bool divides_tokens(const DecodeWork& work, const DecodePlan& plan) {
  return work.groups_of_tokens(plan) > work.batch;
}

// Where a multiprocessor has room for two thread blocks. One that is alone on it is faster.
double time_in_pairs(const DecodeWork& work, const DecodePlan& plan) {
  const few::Pairs& t = plan.tokens == 8 ? few::pairs_of_8 : few::pairs_of_16;
  const double two = plan.warp_tiles - 1;
  const int warps = plan.row_tiles >> (plan.warp_tiles - 1) << plan.log2_parts;
  const double turn =
      (t.turn + (work.has_float_scales ? t.nvfp4 : 0.0) + (plan.x_stages > 0 ? t.shared : 0.0)) *
          (1 + t.two_tiles * two) * (1 - t.idle_warps * (1 - warps / 8.0)) +
      t.kilobyte * kilobytes_of_tokens(plan, warps);
  const std::int64_t blocks = work.blocks(plan);
  const std::int64_t slots = cluster_slots(work.processors, plan.log2_ranks);
  const std::int64_t before = rounds_of(blocks, 2 * slots) - 1;
  const bool is_alone = is_last_alone(work, plan, before, slots);
  const double turns = turns_of(work, plan) * turn;
  const double end = t.end_of_two * two + t.end_of_part * (1 << plan.log2_parts);
  const double pair = turns + t.end + t.end_of_rank * plan.log2_ranks + end;
  const double lone = turns * t.lone_turn + t.lone_end + t.lone_end_of_rank * plan.log2_ranks + end;
  const double time = t.start + static_cast<double>(before) * pair + (is_alone ? lone : pair) +
                      (divides_tokens(work, plan) ? few::several_groups : 0.0) -
                      (leaves_half(work, blocks) ? t.half : 0.0);
  return together(std::max(time, 0.1), t.memory_byte * work.weight_bytes + t.memory);
}

// Where it has room for one. A turn takes a warp as long as it waits for itself, or its scheduler
// as long as the tiles of all its warps take, or memory as long as their weights and tokens. What
// is behind the turns takes longer with more parts to add.
double time_alone(const DecodeWork& work, const DecodePlan& plan) {
  const auto of = [](int tokens) -> few::AloneTurn {
    switch (tokens) {
      case 8: return few::turn_of_8;
      case 16: return few::turn_of_16;
      case 32: return few::turn_of_32;
      default: return few::turn_of_64;
    }
  };
  const bool is_few = plan.tokens <= 16;
  const few::Alone& t = is_few ? few::alone_of_few : few::alone_of_more;
  const few::AloneTurn of_warp = of(plan.tokens);
  const int warps = plan.row_tiles << plan.log2_parts, parts = 1 << plan.log2_parts;
  const double tile = of_warp.tile + of_scheme(is_few ? few::tile_of_few : few::tile_of_more, work);
  const double weights = warps * work.layout.tile_bytes() / 1024.0;
  const double bytes = is_few ? few::kilobyte_of_few * (weights + kilobytes_of_tokens(plan, warps))
                              : few::kilobyte_of_more * weights;
  double wait = of_warp.warp;
  if (is_few) {
    wait += (plan.x_stages > 0 ? few::shared_wait : 0.0) -
            (work.layout.bits == 8 ? few::less_wait_of_wide : 0.0);
  }
  const double turn = together(wait, tile * warps / 4, bytes);
  double end = t.end + t.end_of_token * plan.tokens + t.end_of_rank * plan.log2_ranks +
               t.end_of_part * parts;
  if (is_few && parts == 16) end -= few::less_end_of_16_parts;
  const std::int64_t blocks = work.blocks(plan);
  const std::uint32_t rounds = rounds_of(blocks, cluster_slots(work.processors, plan.log2_ranks));
  const double time = rounds * (turns_of(work, plan) * turn + end) + t.start +
                      (is_few && divides_tokens(work, plan) ? few::several_groups : 0.0) -
                      (leaves_half(work, blocks) ? t.half : 0.0);
  return together(time, t.memory_byte * work.weight_bytes + t.memory);
}

// Two warpgroups, where a thread block of the next kernel has room beside this one's: nearly as
// fast as four, and less around them. Alone on a multiprocessor, or beside another one of the same
// product. Idle multiprocessors are shared unevenly.
double few_sm90_time_of_pairs(const DecodeWork& work, const DecodePlan& plan) {
  const auto turn_of = [&](const few::PairsSm90& t) {
    const bool is_wide = work.layout.bits == 8, is_divided = plan.log2_parts == 1;
    return (plan.tokens == 32   ? t.turn_32
            : plan.tokens == 64 ? t.turn_64
                                : t.turn_96) +
           (is_divided ? t.divided : 0.0) +
           (is_wide && is_divided && plan.tokens == 64 ? t.two_stages : 0.0) +
           of_scheme(t.schemes, work);
  };
  const std::int64_t blocks = work.blocks(plan);
  const std::int64_t slots = cluster_slots(work.processors, plan.log2_ranks);
  const std::int64_t before = rounds_of(blocks, 2 * slots) - 1;
  const bool is_alone = is_last_alone(work, plan, before, slots);
  const double turns = turns_of(work, plan);
  const double halves =
      work.has_halves ? few::halves_sm90 + of_scheme(few::of_halves_sm90, work) : 0.0;
  const auto time_of = [&](const few::PairsSm90& t, double of_halves_here) {
    return turns * (turn_of(t) + of_halves_here) + t.end + t.end_of_rank * plan.log2_ranks +
           few::pair_end_of_token * plan.tokens + few::pair_end_of_part * plan.log2_parts;
  };
  double time = static_cast<double>(before) * time_of(few::pair_sm90, halves);
  time += is_alone ? time_of(few::lone_sm90, halves / 2) : time_of(few::pair_sm90, halves);
  if (is_alone && before == 0) {
    const double idle = 1.0 - static_cast<double>(blocks) / static_cast<double>(slots);
    time += idle * turns * turn_of(few::lone_sm90);
  }
  if (divides_tokens(work, plan)) time += few::pair_several_groups;
  if (leaves_half(work, blocks)) time -= few::pair_half_empty;
  return together(std::max(time, 0.1),
                  few::pair_memory_byte * work.weight_bytes + few::pair_memory);
}

}  // namespace

DecodeWork::DecodeWork(Scheme scheme, std::int64_t batch_, std::int64_t tokens_, std::int64_t rows,
                       std::int64_t columns, int processors_)
    : layout(DecodeLayout::of(scheme, rows, columns)),
      batch(batch_),
      tokens(tokens_),
      processors(processors_),
      down(static_cast<std::uint32_t>(layout.tiles_down())),
      across(static_cast<std::uint32_t>(layout.tiles_across())),
      weight_bytes(static_cast<double>(batch) * down * across * layout.tile_bytes()),
      has_float_scales(!facts_of(scheme).scales_are_powers) {}

double decode_time(const DecodeWork& work, const DecodePlan& plan) {
  const DecodeShape shape{work.layout.bits, work.layout.block, plan.tokens};
  return shape.tenants() == 2 ? time_in_pairs(work, plan) : time_alone(work, plan);
}

// Warpgroups share a turn. Those of other parts of K have other tokens, which come through the
// second-level cache; with fewer thread blocks there is more of it for each.
double decode_sm90_time(const DecodeWork& work, const DecodePlan& plan) {
  if (DecodeSm90Shape::has_pairs(plan.tokens, plan.row_tiles, plan.log2_parts)) {
    return few_sm90_time_of_pairs(work, plan);
  }
  const int tiles = plan.row_tiles << plan.log2_parts;
  const bool has_four = tiles == 4 * DecodeSm90Shape::group_tiles;
  const auto of = [has_four](int tokens) -> few::TurnSm90 {
    switch (tokens) {
      case 32: return few::four_of_32;
      case 64: return few::four_of_64;
      case 96: return has_four ? few::four_of_96 : few::two_of_96;
      case 128: return has_four ? few::four_of_128 : few::two_of_128;
      case 192: return few::two_of_192;
      default: return few::two_of_256;
    }
  };
  const few::TurnSm90 turns = of(plan.tokens);
  const double of_two_warpgroups = plan.tokens <= 128  ? few::two_up_to_128
                                   : plan.tokens < 256 ? few::two_up_to_192
                                                       : few::two_of_more;
  const double share = has_four ? 1.0 : of_two_warpgroups;
  const double halves =
      work.has_halves ? share * (few::halves_sm90 + of_scheme(few::of_halves_sm90, work)) : 0.0;
  const int parts = 1 << plan.log2_parts, ranks = 1 << plan.log2_ranks;
  const std::int64_t blocks = work.blocks(plan);
  const std::int64_t slots = cluster_slots(work.processors, plan.log2_ranks);
  const auto rounds = static_cast<double>(rounds_of(blocks, slots));
  const double kilobytes = (plan.tokens * parts * 256 + tiles * work.layout.tile_bytes()) / 1024.0;
  const double idle = 1.0 - static_cast<double>(blocks) / (rounds * static_cast<double>(slots));
  const double turn = (parts == 1   ? turns.whole
                       : parts == 2 ? turns.halves
                                    : turns.quarters) +
                      of_scheme(has_four ? few::turn_of_four_sm90 : few::turn_of_two_sm90, work) +
                      halves - few::idle_kilobyte * idle * kilobytes;
  constexpr few::EndSm90 e = few::end_sm90;
  const double end = e.once + e.token * plan.tokens + e.part * (parts - 1) +
                     (ranks > 1 ? e.ranks + e.token_of_ranks * plan.tokens : 0.0) +
                     (ranks > 2 ? e.more_ranks : 0.0);
  // A last round that is not full brings its tokens and weights faster.
  const double left =
      rounds > 1 ? rounds - static_cast<double>(blocks) / static_cast<double>(slots) : 0.0;
  const double time = rounds * (turns_of(work, plan) * turn + end) - few::left_sm90 * left -
                      (leaves_half(work, blocks) ? few::half_sm90 : 0.0);
  return together(time, few::memory_byte_sm90 * work.weight_bytes + few::memory_sm90);
}

}  // namespace mxkern
