// plan/hopper/tiles.h: the tile of a product on Hopper.
#pragma once

#include <array>
#include <cstdint>

#include "mxkern/core/math.h"
#include "plan/core_rows.h"
#include "plan/hopper/split_k.h"
#include "plan/hopper/overlap_rows.h"
#include "tuning/h200.h"

namespace mxkern::cuda {

// Of 8-bit elements.
constexpr tuning::h200::tiles::Clocks tile_clocks_sm90(const TileSm90& tile) {
  namespace tuned = tuning::h200::tiles;
  switch (tile.columns) {
    case 64: return tuned::of_64;
    case 128: return tuned::of_128;
    case 192: return tuned::of_192;
    default: return tuned::of_256;
  }
}

// What tiles take longer, in percent, whose blocks do not share loads.
constexpr std::int64_t percent_of_cluster(const TileSm90& tile) {
  return tile.cluster == 1 ? tuning::h200::tiles::lone_percent : 100;
}

// Clocks of the turns of tiles of 8-bit elements.
constexpr std::int64_t clocks_sm90(const TileSm90& tile, const kernels::WorkOrder& work) {
  const auto [step, end, longer] = tile_clocks_sm90(tile);
  const std::int64_t one = work.steps * step + end;
  std::int64_t clocks = ceil_div(work.whole, work.clusters) * one;
  if (work.divided() > 0) {
    // Behind whole turns few parts take no less than the most.
    const std::int64_t join = higher_of(join_clocks(tile, work.shared_tiles, work.sharing_clusters),
                                        join_clocks(tile, 1, tuning::h200::divided::most_parts));
    clocks += ceil_div(work.shared_tiles * work.steps, work.sharing_clusters) * step + end + join;
  }
  return clocks * (1000 + longer) / 1000 * percent_of_cluster(tile) / 100;
}

// The same for bfloat16 elements, in percent of what the tensor cores take for an element.
constexpr std::int64_t clocks_of_turns_sm90(const TileSm90& tile, std::int64_t turns) {
  return turns * tile.rows * tile.columns *
         tuning::h200::tiles::bfloat16_percents[tile.columns / 64 - 1];
}

// The tile with so many columns. The ring of stages fills shared memory.
constexpr TileSm90 tile_of_columns_sm90(int columns, CoreElement right, std::int64_t m,
                                        std::int64_t n) {
  const int k = right == CoreElement::bfloat16 ? 64 : 128;
  const int stages = columns == 64 ? 8 : columns == 128 ? 6 : 4;
  return with_cluster(TileSm90{128, columns, k, stages, 1}, m, n);
}

// The tile for a product of [batch, m, k] and [batch, n, k]: the one of four that keeps the
// processors busiest. The largest bfloat16 tile is the only one where codes are decoded on the left
// of a bfloat16 operand.
constexpr TileSm90 tile_sm90(CoreElement left, CoreElement right, std::int64_t batch,
                             std::int64_t m, std::int64_t n, std::int64_t k, int processors) {
  const bool is_bfloat16 = right == CoreElement::bfloat16;
  const TileSm90 large = tile_of_columns_sm90(256, right, m, n);
  if (is_bfloat16 && left != right) return large;
  const auto clocks = [&](const TileSm90& tile) {
    if (is_bfloat16) return clocks_of_turns_sm90(tile, tile.turns(batch, m, n, processors));
    return clocks_sm90(tile, work_sm90(tile, right, 1, batch, m, n, k, processors));
  };
  const bool has_late_rows = left == CoreElement::e4m3 && right == CoreElement::e4m3 &&
                             batch == 1 &&
                             first_folded_left_rows_sm90(large, m, n, k, processors) > 0;
  TileSm90 best = large;
  std::int64_t least =
      clocks(large) * (has_late_rows ? tuning::h200::tiles::late_rows_permille : 1000);
  for (const int columns : std::array{192, 128, 64}) {
    const TileSm90 tile = tile_of_columns_sm90(columns, right, m, n);
    if (clocks(tile) * 1000 >= least) continue;
    best = tile;
    least = clocks(tile) * 1000;
  }
  return best;
}

// How the folded and the exact product of [m, k] and [n, k] are cut in the kernel that computes
// either, with tiles of one size.
struct FusedDispatchTilesSm90 {
  bool is_better;  // than a kernel for each, and one for operands between them
  TileSm90 folded, exact;
  kernels::WorkOrder exact_work;
};

// Products that are long in the largest tile are better off with kernels that have nothing to do.
// The exact product may be divided along K only as it is in a kernel of its own, lest its bytes be
// others.
constexpr FusedDispatchTilesSm90 fused_dispatch_tiles_sm90(CoreElement left, CoreElement right,
                                                           std::int64_t m, std::int64_t n,
                                                           std::int64_t k, int processors) {
  constexpr int largest_columns = 256;
  constexpr CoreElement wide = CoreElement::bfloat16;
  const TileSm90 folded = tile_sm90(left, right, 1, m, n, k, processors);
  const TileSm90 exact = tile_of_columns_sm90(folded.columns, wide, m, n);
  const TileSm90 alone = tile_sm90(wide, wide, 1, m, n, k, processors);
  const kernels::WorkOrder work = work_sm90(alone, wide, 1, 1, m, n, k, processors);
  const bool has_its_tile = alone.columns == exact.columns;
  const bool is_short = folded.columns < largest_columns ||
                        folded.turns(1, m, n, processors) * ceil_div(k, folded.k) <=
                            tuning::h200::tiles::most_steps_in_one_kernel;
  return {is_short && (has_its_tile || work.divided() == 0), folded, exact,
          has_its_tile ? work : whole_work(exact, step_unit_sm90(wide), 1, m, n, k, processors)};
}

}  // namespace mxkern::cuda
