// plan/hopper/split_k.h: tiles of a product on Hopper, and which of them are divided along K.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/kernels/gemm/hopper/tile_scheduler.h"
#include "plan/core_rows.h"
#include "tuning/h200.h"

namespace mxkern::cuda {

// How a product is cut: a thread block computes `rows` x `columns` of the output, `k` elements of
// the sums at a time with `stages` of them under way; `cluster` blocks share loads.
struct TileSm90 {
  int rows, columns, k, stages, cluster;

  constexpr std::int64_t step_clocks() const { return rows * columns / 32; }  // of tensor cores

  // What a cluster computes at once. Its blocks lie side by side, those of a tile that is wider
  // than high one below the other.
  constexpr bool is_wide() const { return columns > rows; }
  constexpr int cluster_rows() const { return is_wide() ? rows * cluster : rows; }
  constexpr int cluster_columns() const { return is_wide() ? columns : columns * cluster; }

  // Rows of each tile of a product: as few as it takes for as many tiles, in sixteens, of which a
  // warp has one.
  constexpr int height(std::int64_t m) const {
    const std::int64_t tiles = ceil_div(m, cluster_rows()) * (cluster_rows() / rows);
    return static_cast<int>(round_up(ceil_div(m, tiles), 16));
  }

  // Tiles that one multiprocessor computes, one after the other.
  constexpr std::int64_t turns(std::int64_t batch, std::int64_t m, std::int64_t n,
                               int processors) const {
    return ceil_div(batch * ceil_div(m, rows) * ceil_div(n, columns), processors);
  }
};

// Blocks share loads where their number is even, or so large that one more, which has nothing to
// do, costs less than that saves.
constexpr bool shares_loads(std::int64_t neighbours) {
  return neighbours % 2 == 0 || neighbours >= tuning::h200::tiles::fewest_odd;
}
constexpr TileSm90 with_cluster(TileSm90 tile, std::int64_t m, std::int64_t n) {
  const std::int64_t neighbours =
      tile.is_wide() ? ceil_div(m, tile.rows) : ceil_div(n, tile.columns);
  tile.cluster = shares_loads(neighbours) ? 2 : 1;
  return tile;
}

// A part starts at a multiple of so many steps of K: elements that become bfloat16 may have scales
// for four steps at a time, see gemm/hopper/upcast.cuh. Whether they have must not change the sums.
constexpr int step_unit_sm90(CoreElement right) { return right == CoreElement::bfloat16 ? 4 : 1; }

// The tiles of [batch, m, k] x [batch, n, k], none of them divided.
constexpr kernels::WorkOrder whole_work(const TileSm90& tile, int unit, std::int64_t batch,
                                        std::int64_t m, std::int64_t n, std::int64_t k,
                                        int processors) {
  const auto tiles = static_cast<int>(batch * ceil_div(m, tile.cluster_rows()) *
                                      ceil_div(n, tile.cluster_columns()));
  const int clusters = lower_of(tiles, processors / tile.cluster);
  return {tiles, tiles, clusters, static_cast<int>(ceil_div(k, tile.k)), unit};
}

// Clocks that it takes to leave and to add the sums of tiles, `shared` of them divided by `sharing`
// clusters.
constexpr std::int64_t join_clocks(const TileSm90& tile, int shared, int sharing) {
  const int parts = (sharing + shared - 1) / shared;  // of a tile
  namespace tuned = tuning::h200::divided;
  const std::int64_t clocks = shared == 1
                                  ? tuned::join_part * parts
                                  : higher_of(tuned::join_several, tuned::join_many * parts);
  return clocks * tile.rows * tile.columns / (96 * 1024 / 4);
}

// The same with the tiles of the last turn divided where that pays.
constexpr kernels::WorkOrder divided_work(const TileSm90& tile, int unit, std::int64_t batch,
                                          std::int64_t m, std::int64_t n, std::int64_t k,
                                          int processors) {
  namespace tuned = tuning::h200::divided;
  constexpr int most_units = 1 << 16;
  kernels::WorkOrder best = whole_work(tile, unit, batch, m, n, k, processors);
  const int clusters = processors / tile.cluster;
  const int rest = best.tiles % clusters;
  const auto units = static_cast<int>(ceil_div(best.steps, unit));
  if (rest == 0 || units > most_units) return best;
  std::int64_t most_gained = tuned::least_gained;
  const auto consider = [&](int shared, int sharing) {
    const std::int64_t steps = ceil_div(std::int64_t{shared} * units, sharing) * unit;
    const std::int64_t saved = (best.steps - steps) * tile.step_clocks();
    const std::int64_t gained =
        saved * tuned::gained_tenths / 10 - join_clocks(tile, shared, sharing);
    if (gained <= most_gained) return;
    most_gained = gained;
    best.whole = best.tiles - rest;
    best.clusters = clusters;
    best.shared_tiles = shared;
    best.sharing_clusters = sharing;
  };
  // Half a turn of 8-bit elements and nothing else waits for memory, not for tensor cores.
  const bool has_whole_turns = best.tiles > clusters;
  const int fewest_parts = has_whole_turns || unit > 1 ? 2 : 3;
  for (int parts = fewest_parts;
       parts <= tuned::most_parts && parts * rest <= clusters && parts <= units; ++parts) {
    consider(1, parts);
  }
  // All of them by all, behind whole turns.
  if (has_whole_turns && clusters <= rest * units &&
      rest * 5 <= clusters * tuned::most_shared_fifths) {
    consider(rest, clusters);
  }
  return best;
}

// What is done where there is working memory. Elements in `parts` parts of K are not divided again.
constexpr kernels::WorkOrder work_sm90(const TileSm90& tile, CoreElement right, int parts,
                                       std::int64_t batch, std::int64_t m, std::int64_t n,
                                       std::int64_t k, int processors) {
  const int unit = step_unit_sm90(right);
  return parts > 1 ? whole_work(tile, unit, batch, m, n, k, processors)
                   : divided_work(tile, unit, batch, m, n, k, processors);
}

// Working memory for the sums of parts: counters, and then the sums. A warp has 16 rows of a tile.
constexpr std::int64_t part_counters(const TileSm90& tile, const kernels::WorkOrder& work) {
  return std::int64_t{work.divided()} * tile.cluster * tile.rows / 16;
}
constexpr std::int64_t part_sums_offset(const TileSm90& tile, const kernels::WorkOrder& work) {
  return round_up(part_counters(tile, work) * 4, 256);
}
constexpr std::int64_t part_bytes(const TileSm90& tile, const kernels::WorkOrder& work) {
  if (work.divided() == 0) return 0;
  return part_sums_offset(tile, work) +
         std::int64_t{work.slots()} * tile.cluster * tile.rows * tile.columns * 4;
}

}  // namespace mxkern::cuda
