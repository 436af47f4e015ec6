// few_times.cc: how long a product of few tokens takes by a plan, as measured on an H200.
//
// Constants are fitted to 80003 plans of 2103 products, of 30 shapes of weights in four schemes
// with 8 to 1024 tokens; of gemm_few then to 1254 of 206; those of Hopper's kernel to 16429 of 555,
// of pairs of thread blocks to 765 of 145 and, for 32 tokens, to 165 of 80: first to the
// times of plans not far from the best, then such that what is chosen is fast. There are rounds of
// thread blocks, each an end and turns of 128 columns for each part of K; and memory has to bring
// the weights. Microseconds.
#include "few_times.h"

#include <algorithm>
#include <cmath>

#include "mxkern/core/math.h"
#include "mxkern/kernels/few_shape.h"
#include "mxkern/kernels/few_sm90_shape.h"

namespace mxkern {
namespace {

using kernels::FewShape;
using kernels::FewSm90Shape;

// Of things that happen side by side: little more than the longest takes.
double together(double a, double b, double c = 0.0) {
  a *= a, b *= b, c *= c;
  return std::sqrt(std::sqrt(a * a + b * b + c * c));
}

// Of the thread blocks' warps, or of their warpgroups.
double turns_of(const FewWork& work, const FewPlan& plan) {
  const std::uint32_t tiles = (work.across + (1u << plan.log2_ranks) - 1) >> plan.log2_ranks;
  return (tiles + (1u << plan.log2_parts) - 1) >> plan.log2_parts;
}

std::uint32_t rounds_of(std::int64_t blocks, std::int64_t slots) {
  if (blocks <= slots) return 1;
  const auto few = static_cast<std::uint32_t>(std::min<std::int64_t>(blocks, 1 << 30));
  return ceil_div(few, static_cast<std::uint32_t>(slots));
}

// What schemes add to MXFP4.
struct OfScheme {
  double nvfp4, six_bits, eight_bits;
  double of(const FewWork& work) const {
    if (work.layout.bits == 4) return work.has_float_scales ? nvfp4 : 0.0;
    return work.layout.bits == 6 ? six_bits : eight_bits;
  }
};

// Whether the last thread blocks have a multiprocessor each, where it has room for two. Without
// groups of rows that do not exist some share one while others idle.
bool is_last_alone(const FewWork& work, const FewPlan& plan, std::int64_t before,
                   std::int64_t slots) {
  const std::int64_t left = work.blocks(plan) - before * 2 * slots;
  return left <= slots && (before > 0 || left == slots || work.fills_processors(plan));
}

// The next product's thread blocks find room beside those of this one, all of them.
bool leaves_half(const FewWork& work, std::int64_t blocks) { return 2 * blocks <= work.processors; }

// Kilobytes of tokens in a turn of a thread block: of each part of K, or for each warp.
double kilobytes_of_tokens(const FewPlan& plan, int warps) {
  return plan.tokens / 4.0 * (plan.x_stages > 0 ? 1 << plan.log2_parts : warps);
}

// Whether there are several groups of tokens for the same weights, and so more thread blocks.
bool divides_tokens(const FewWork& work, const FewPlan& plan) {
  return work.groups_of_tokens(plan) > work.batch;
}
constexpr double several_few_groups = 0.2438;  // of gemm_few

// Where a multiprocessor has room for two thread blocks. One that is alone on it is faster.
double time_in_pairs(const FewWork& work, const FewPlan& plan) {
  struct Times {
    double start, turn, nvfp4, shared, two_tiles, idle_warps, kilobyte, end, end_of_rank, lone_turn,
        lone_end, lone_end_of_rank, end_of_two, end_of_part, half, memory_byte, memory;
  };
  constexpr Times of_8 = {-1.503, 0.7092, 0.0,    0.1653, 0.7833,  0.677,   0.01261,   2.936, 1.287,
                          0.6294, 3.164,  0.5897, 0.4419, -0.1406, -0.3354, 0.2029e-6, 2.109};
  constexpr Times of_16 = {0.00226,   1.191,   0.05233, 0.08773,   0.6842, 0.8647,
                           0.0008384, 2.026,   0.9722,  0.6379,    1.655,  0.5991,
                           0.5569,    -0.1193, -0.3729, 0.1508e-6, 2.407};
  const Times& t = plan.tokens == 8 ? of_8 : of_16;
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
                      (divides_tokens(work, plan) ? several_few_groups : 0.0) -
                      (leaves_half(work, blocks) ? t.half : 0.0);
  return together(std::max(time, 0.1), t.memory_byte * work.weight_bytes + t.memory);
}

// Where it has room for one. A turn takes a warp as long as it waits for itself, or its scheduler
// as long as the tiles of all its warps take, or memory as long as their weights and tokens. What
// is behind the turns takes longer with more parts to add.
double time_alone(const FewWork& work, const FewPlan& plan) {
  struct Times {
    double start, end, end_of_token, end_of_rank, end_of_part, half, memory_byte, memory;
  };
  constexpr Times of_few = {-0.3977, 1.335, 0.04564, 0.93, 0.01146, 0.8856, 0.2099e-6, 1.717};
  constexpr Times of_more = {-0.6269, 4.1767, 0.0154, 0.3253, 0.2122, 0.8064, 0.2277e-6, 2.9769};
  struct Turn {
    double warp, tile;
  };
  const auto of = [](int tokens) -> Turn {
    switch (tokens) {
      case 8: return {0.3837, 0.2736};
      case 16: return {0.4036, 0.2948};
      case 32: return {1.1258, 0.2818};
      default: return {1.456, 0.362};
    }
  };
  constexpr OfScheme few_tile = {0.0, 0.03451, 0.06627}, more_tile = {0.0418, 0.0871, 0.038};
  const bool is_few = plan.tokens <= 16;
  const Times& t = is_few ? of_few : of_more;
  const Turn of_warp = of(plan.tokens);
  const int warps = plan.row_tiles << plan.log2_parts, parts = 1 << plan.log2_parts;
  const double tile = of_warp.tile + (is_few ? few_tile : more_tile).of(work);
  const double weights = warps * work.layout.tile_bytes() / 1024.0;
  const double bytes =
      is_few ? 0.009572 * (weights + kilobytes_of_tokens(plan, warps)) : 0.0156 * weights;
  double wait = of_warp.warp;
  // A warp waits less for words of 8 bits, each of which has fewer codes.
  if (is_few) wait += (plan.x_stages > 0 ? 0.4349 : 0.0) - (work.layout.bits == 8 ? 0.1915 : 0.0);
  const double turn = together(wait, tile * warps / 4, bytes);
  double end = t.end + t.end_of_token * plan.tokens + t.end_of_rank * plan.log2_ranks +
               t.end_of_part * parts;
  if (is_few && parts == 16) end -= 0.2267;
  const std::int64_t blocks = work.blocks(plan);
  const std::uint32_t rounds = rounds_of(blocks, cluster_slots(work.processors, plan.log2_ranks));
  const double time = rounds * (turns_of(work, plan) * turn + end) + t.start +
                      (is_few && divides_tokens(work, plan) ? several_few_groups : 0.0) -
                      (leaves_half(work, blocks) ? t.half : 0.0);
  return together(time, t.memory_byte * work.weight_bytes + t.memory);
}

// Two warpgroups, where a thread block of the next kernel has room beside this one's: nearly as
// fast as four, and less around them. Alone on a multiprocessor, or beside another one of the same
// product. Idle multiprocessors are shared unevenly.
double few_sm90_time_of_pairs(const FewWork& work, const FewPlan& plan) {
  struct Times {
    double turn_32, turn_64, turn_96, divided, two_stages, end, end_of_rank;
    OfScheme schemes;

    double turn(const FewWork& work, const FewPlan& plan) const {
      const bool is_wide = work.layout.bits == 8, is_divided = plan.log2_parts == 1;
      return (plan.tokens == 32   ? turn_32
              : plan.tokens == 64 ? turn_64
                                  : turn_96) +
             (is_divided ? divided : 0.0) +
             (is_wide && is_divided && plan.tokens == 64 ? two_stages : 0.0) + schemes.of(work);
    }
  };
  constexpr Times lone = {0.3710, 0.4680, 0.5488, 0.0229,
                          0.12,   0.8763, 0.7159, {0.0241, 0.13, 0.0609}};
  constexpr Times pair = {0.7150, 0.9700, 1.2000, 0.0216,
                          0.12,   1.0718, 0.7083, {0.0625, 0.24, 0.0915}};
  constexpr OfScheme of_halves = {-0.04, 0.1, 0.1};
  constexpr double end_of_token = 0.0230, end_of_part = 0.0895, half_empty = 0.6;
  constexpr double several_groups = 0.2;  // of tokens
  constexpr double memory_byte = 0.2103e-6, memory = 2.3041;
  const std::int64_t blocks = work.blocks(plan);
  const std::int64_t slots = cluster_slots(work.processors, plan.log2_ranks);
  const std::int64_t before = rounds_of(blocks, 2 * slots) - 1;
  const bool is_alone = is_last_alone(work, plan, before, slots);
  const double turns = turns_of(work, plan);
  const double halves = work.has_halves ? 0.1 + of_halves.of(work) : 0.0;
  const auto time_of = [&](const Times& t, double of_halves_here) {
    return turns * (t.turn(work, plan) + of_halves_here) + t.end + t.end_of_rank * plan.log2_ranks +
           end_of_token * plan.tokens + end_of_part * plan.log2_parts;
  };
  double time = static_cast<double>(before) * time_of(pair, halves);
  time += is_alone ? time_of(lone, halves / 2) : time_of(pair, halves);
  if (is_alone && before == 0) {
    const double idle = 1.0 - static_cast<double>(blocks) / static_cast<double>(slots);
    time += idle * turns * lone.turn(work, plan);
  }
  if (divides_tokens(work, plan)) time += several_groups;
  if (leaves_half(work, blocks)) time -= half_empty;
  return together(std::max(time, 0.1), memory_byte * work.weight_bytes + memory);
}

}  // namespace

FewWork::FewWork(Scheme scheme, std::int64_t batch_, std::int64_t tokens_, std::int64_t rows,
                 std::int64_t columns, int processors_)
    : layout(DecodeLayout::of(scheme, rows, columns)),
      batch(batch_),
      tokens(tokens_),
      processors(processors_),
      down(static_cast<std::uint32_t>(layout.tiles_down())),
      across(static_cast<std::uint32_t>(layout.tiles_across())),
      weight_bytes(static_cast<double>(batch) * down * across * layout.tile_bytes()),
      has_float_scales(!facts_of(scheme).scales_are_powers) {}

double few_time(const FewWork& work, const FewPlan& plan) {
  const FewShape shape{work.layout.bits, work.layout.block, plan.tokens};
  return shape.tenants() == 2 ? time_in_pairs(work, plan) : time_alone(work, plan);
}

// Warpgroups share a turn. Those of other parts of K have other tokens, which come through the
// second-level cache; with fewer thread blocks there is more of it for each.
double few_sm90_time(const FewWork& work, const FewPlan& plan) {
  if (FewSm90Shape::has_pairs(plan.tokens, plan.row_tiles, plan.log2_parts)) {
    return few_sm90_time_of_pairs(work, plan);
  }
  struct Turn {
    double whole, halves, quarters;  // as K is in so many parts
  };
  const int tiles = plan.row_tiles << plan.log2_parts;
  const bool has_four = tiles == 4 * FewSm90Shape::group_tiles;
  const auto of = [has_four](int tokens) -> Turn {
    switch (tokens) {
      case 32: return {0.695, 0.708, 0.793};
      case 64: return {0.905, 0.918, 1.065};
      case 96: return has_four ? Turn{1.098, 1.104, 1.3} : Turn{0.563, 0.610, 0.0};
      case 128: return has_four ? Turn{1.358, 1.375, 1.6} : Turn{0.691, 0.726, 0.0};
      case 192: return {0.986, 1.028, 0.0};
      default: return {1.410, 1.5, 0.0};
    }
  };
  constexpr OfScheme of_four_warpgroups = {0.039, 0.228, 0.107}, of_two = {0.020, 0.126, 0.058};
  constexpr OfScheme of_halves = {-0.04, 0.1, 0.1};
  const Turn turns = of(plan.tokens);
  // Two warpgroups decode half as much in a turn, and the more tokens there are, the more of it is
  // hidden.
  const double of_two_warpgroups = plan.tokens <= 128 ? 0.5 : plan.tokens < 256 ? 0.4 : 0.1;
  const double share = has_four ? 1.0 : of_two_warpgroups;
  const double halves = work.has_halves ? share * (0.1 + of_halves.of(work)) : 0.0;
  const int parts = 1 << plan.log2_parts, ranks = 1 << plan.log2_ranks;
  const std::int64_t blocks = work.blocks(plan);
  const std::int64_t slots = cluster_slots(work.processors, plan.log2_ranks);
  const auto rounds = static_cast<double>(rounds_of(blocks, slots));
  const double kilobytes = (plan.tokens * parts * 256 + tiles * work.layout.tile_bytes()) / 1024.0;
  const double idle = 1.0 - static_cast<double>(blocks) / (rounds * static_cast<double>(slots));
  const double turn = (parts == 1   ? turns.whole
                       : parts == 2 ? turns.halves
                                    : turns.quarters) +
                      (has_four ? of_four_warpgroups : of_two).of(work) + halves -
                      0.0033 * idle * kilobytes;
  const double end = 3.088 + 0.0039 * plan.tokens + 0.241 * (parts - 1) +
                     (ranks > 1 ? 0.746 + 0.0019 * plan.tokens : 0.0) + (ranks > 2 ? 0.899 : 0.0);
  // A last round that is not full brings its tokens and weights faster.
  const double left =
      rounds > 1 ? rounds - static_cast<double>(blocks) / static_cast<double>(slots) : 0.0;
  const double time = rounds * (turns_of(work, plan) * turn + end) - 0.421 * left -
                      (leaves_half(work, blocks) ? 0.790 : 0.0);
  return together(time, 0.1972e-6 * work.weight_bytes + 2.107);
}

}  // namespace mxkern
