// few_times.cc: how long a product of few tokens takes by a plan, as measured on an H200.
//
// Constants are fitted to 80003 plans of 2103 products, of 30 shapes of weights in four schemes
// with 8 to 1024 tokens, and to 16400 others up to 16; those of Hopper's kernel to 16429 of 555:
// first to the times of plans not far from the best, then such that what is chosen is fast. There
// are rounds of thread blocks, each an end and turns of 128 columns for each part of K; and memory
// has to bring the weights. Microseconds.
#include "few_times.h"

#include <algorithm>
#include <cmath>

#include "mxkern/core/math.h"
#include "mxkern/kernels/few_shape.h"
#include "mxkern/kernels/few_sm90_shape.h"

namespace mxkern {
namespace {

using kernels::FewShape;

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
  double of(const DecodeLayout& layout) const {
    if (layout.bits == 4) return layout.block == 16 ? nvfp4 : 0.0;
    return layout.bits == 6 ? six_bits : eight_bits;
  }
};

// The next product's thread blocks find room beside those of this one, all of them.
bool leaves_half(const FewWork& work, std::int64_t blocks) { return 2 * blocks <= work.processors; }

// Where a multiprocessor has room for two thread blocks. One that is alone on it is faster.
double time_in_pairs(const FewWork& work, const FewPlan& plan) {
  struct Times {
    double start, turn, two_tiles, nvfp4, kilobyte, end, end_of_rank, lone_end, lone_end_of_rank,
        lone_turn, memory_byte, memory, end_of_two, half, idle_warps, end_of_part;
  };
  constexpr Times of_8 = {-1.1002, 0.866,   0.77302,    0.09937, 0.0006,  3.24251, 0.75565, 3.78819,
                          0.29993, 0.55214, 0.22031e-6, 2.70067, 0.36182, 0.23825, 0.42464, 0.0};
  constexpr Times of_16 = {-0.27982, 1.16647, 0.84924,  0.06443, 0.00009,    3.23248,
                           0.5692,   4.14385, -0.00776, 0.57426, 0.24129e-6, 2.56673,
                           0.11597,  0.67876, 0.41354,  -0.01849};
  const Times& t = plan.tokens == 8 ? of_8 : of_16;
  const double two = plan.warp_tiles - 1;
  const int warps = plan.row_tiles >> (plan.warp_tiles - 1) << plan.log2_parts;
  const double turn = (t.turn + (work.layout.block == 16 ? t.nvfp4 : 0.0)) *
                          (1 + t.two_tiles * two) * (1 - t.idle_warps * (1 - warps / 8.0)) +
                      t.kilobyte / 4 * (plan.tokens << plan.log2_parts);
  const std::int64_t blocks = work.blocks(plan);
  const std::int64_t slots = cluster_slots(work.processors, plan.log2_ranks);
  const std::int64_t before = rounds_of(blocks, 2 * slots) - 1;
  const bool is_alone = blocks - before * 2 * slots <= slots;
  const double turns = turns_of(work, plan) * turn;
  const double end = t.end_of_two * two + t.end_of_part * (1 << plan.log2_parts);
  const double pair = turns + t.end + t.end_of_rank * plan.log2_ranks + end;
  const double lone = turns * t.lone_turn + t.lone_end + t.lone_end_of_rank * plan.log2_ranks + end;
  const double time = t.start + static_cast<double>(before) * pair + (is_alone ? lone : pair) -
                      (leaves_half(work, blocks) ? t.half : 0.0);
  return together(std::max(time, 0.1), t.memory_byte * work.weight_bytes + t.memory);
}

// Where it has room for one. A turn takes a warp as long as it waits for itself, or its scheduler
// as long as the tiles of all its warps take, or memory as long as their weights. What is behind
// the turns takes longer with more parts to add.
double time_alone(const FewWork& work, const FewPlan& plan) {
  struct Times {
    double start, end, end_of_token, end_of_rank, end_of_part, half, memory_byte, memory;
  };
  constexpr Times of_loaded = {-1.05690, 3.17201, 0.035, 0.4267, 0.0, 0.32319, 0.23352e-6, 3.43506};
  constexpr Times of_copied = {-0.6269, 4.1767, 0.0154, 0.3253, 0.2122, 0.8064, 0.2277e-6, 2.9769};
  struct Turn {
    double warp, tile;
  };
  const auto of = [](int tokens) -> Turn {
    switch (tokens) {
      case 8: return {0.7213, 0.2381};
      case 16: return {1.04027, 0.31407};
      case 32: return {1.1258, 0.2818};
      default: return {1.456, 0.362};
    }
  };
  constexpr OfScheme of_copied_tile = {0.0418, 0.0871, 0.038}, of_loaded_tile = {0.0, 0.0, 0.00549};
  const bool is_loaded = plan.tokens <= 16;
  const Times& t = is_loaded ? of_loaded : of_copied;
  const Turn of_warp = of(plan.tokens);
  const int warps = plan.row_tiles << plan.log2_parts, parts = 1 << plan.log2_parts;
  const double tile = of_warp.tile + (is_loaded ? of_loaded_tile : of_copied_tile).of(work.layout);
  const double bytes = (is_loaded ? 0.01288 : 0.0156) / 1024 * warps * work.layout.tile_bytes();
  // A warp waits less for words of 8 bits, each of which has fewer codes.
  const double wait = of_warp.warp - (is_loaded && work.layout.bits == 8 ? 0.27077 : 0.0);
  const double turn = together(wait, tile * warps / 4, bytes);
  double end = t.end + t.end_of_token * plan.tokens + t.end_of_rank * plan.log2_ranks +
               t.end_of_part * parts;
  if (plan.tokens == 16) end += 0.06292 * parts + (parts == 16 ? 0.19799 : 0.0);
  const std::int64_t blocks = work.blocks(plan);
  const std::uint32_t rounds = rounds_of(blocks, cluster_slots(work.processors, plan.log2_ranks));
  const double time = rounds * (turns_of(work, plan) * turn + end) + t.start -
                      (leaves_half(work, blocks) ? t.half : 0.0);
  return together(time, t.memory_byte * work.weight_bytes + t.memory);
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
      weight_bytes(static_cast<double>(batch) * down * across * layout.tile_bytes()) {}

double few_time(const FewWork& work, const FewPlan& plan) {
  const FewShape shape{work.layout.bits, work.layout.block, plan.tokens};
  return shape.tenants() == 2 ? time_in_pairs(work, plan) : time_alone(work, plan);
}

// Warpgroups share a turn. Those of other parts of K have other tokens, which come through the
// second-level cache; with fewer thread blocks there is more of it for each.
double few_sm90_time(const FewWork& work, const FewPlan& plan) {
  struct Turn {
    double whole, halves, quarters;  // as K is in so many parts
  };
  const int tiles = plan.row_tiles << plan.log2_parts;
  const bool has_four = tiles == 4 * kernels::FewSm90Shape::group_tiles;
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
  const double halves = work.has_halves ? share * (0.1 + of_halves.of(work.layout)) : 0.0;
  const int parts = 1 << plan.log2_parts, ranks = 1 << plan.log2_ranks;
  const std::int64_t blocks = work.blocks(plan);
  const std::int64_t slots = cluster_slots(work.processors, plan.log2_ranks);
  const auto rounds = static_cast<double>(rounds_of(blocks, slots));
  const double kilobytes = (plan.tokens * parts * 256 + tiles * work.layout.tile_bytes()) / 1024.0;
  const double idle = 1.0 - static_cast<double>(blocks) / (rounds * static_cast<double>(slots));
  const double turn = (parts == 1   ? turns.whole
                       : parts == 2 ? turns.halves
                                    : turns.quarters) +
                      (has_four ? of_four_warpgroups : of_two).of(work.layout) + halves -
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
