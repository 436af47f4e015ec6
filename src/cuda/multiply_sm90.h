// cuda/multiply_sm90.h: products of row-scaled matrices on Hopper: FP8 and bfloat16 tensor cores.
#pragma once

#include <array>
#include <cstdint>

#include "cuda/divide_sm90.h"
#include "cuda/row_scaled.h"
#include "mxkern/core/math.h"

namespace mxkern::cuda {

// Tiles come in bands of clusters that lie one below the other. An H200's 66 clusters of two
// compute 11 x 6 tiles at once: 8-bit elements take 0.7 % less time so, bfloat16 ones do not care.
// Where rows of an operand are made by the product itself, the first tiles should need few of
// them; tiles that are divided stay the same, see TileOrder.
constexpr int band_sm90(bool left_is_late, bool right_is_late) {
  return left_is_late ? 4 : right_is_late ? 16 : 11;
}

// Rows of operands that have to be there when a product of one matrix starts, which makes the
// others itself; 0: all have to.
struct FirstRowsSm90 {
  std::int64_t left = 0, right = 0;
};

// Rows of the left operand that the clusters' first tiles need, in bands as they come where rows
// are late. A few clusters may begin with rows behind them, and wait; but where there are many
// turns, which need rows about as fast as they are made, what is ahead has to last.
constexpr std::int64_t rows_of_first_tiles_sm90(const TileSm90& tile, std::int64_t m,
                                                std::int64_t n, int processors) {
  constexpr std::int64_t most_rows = 8192;  // of those with clusters that wait
  const std::int64_t down = ceil_div(m, tile.cluster_rows());
  const std::int64_t across = ceil_div(n, tile.cluster_columns());
  const std::int64_t band = lower_of(std::int64_t{band_sm90(true, false)}, down);
  const std::int64_t clusters = processors / tile.cluster;
  const std::int64_t waiting = clusters % (band * across);
  const bool may_wait = waiting * 8 <= clusters && m <= most_rows;
  const std::int64_t high = may_wait ? 0 : lower_of(band, waiting);
  return (clusters / (band * across) * band + high) * tile.cluster_rows();
}

// Rows of a folded left operand that have to be there when the product starts, which folds the
// others itself in tiles that have registers for it; 0: all have to. Lower bands of tiles cost as
// much as late rows save where few are late, 2048 x 6144 x 4096, or where folding is a small part,
// 4096 x 14336 x 4096: below 1 % with 57344 columns.
constexpr std::int64_t first_folded_rows_sm90(const TileSm90& tile, std::int64_t m, std::int64_t n,
                                              std::int64_t k, int processors) {
  constexpr std::int64_t columns_with_registers = 256, least_turns = 2, long_row = 8192;
  constexpr std::int64_t least_right = 4096, wide_right = 10240, most_right = 16384;
  if (tile.columns != columns_with_registers || n < least_right || n > most_right) return 0;
  if (tile.turns(1, m, n, processors) < least_turns) return 0;
  const std::int64_t first = rows_of_first_tiles_sm90(tile, m, n, processors);
  const std::int64_t least_times = n > wide_right ? 8 : k >= long_row ? 2 : 3;
  return first * least_times <= m ? first : 0;
}

// Given which operands have rows that can be made so. It is done to the one with more rows, if
// the other one has enough that there is time for it: the bands of the right one use its rows
// longer. In two turns of bfloat16 tiles rows are needed too soon, but for half of the left ones
// where they are long; shorter ones are decoded.
constexpr FirstRowsSm90 first_rows_sm90(const TileSm90& tile, std::int64_t m, std::int64_t n,
                                        std::int64_t k, int processors, bool left, bool right) {
  constexpr std::int64_t least_turns = 3, least_left = 2048, least_right = 4096, long_row = 10240;
  if (tile.k == 128) return {left ? first_folded_rows_sm90(tile, m, n, k, processors) : 0, 0};
  const std::int64_t turns = tile.turns(1, m, n, processors);
  const bool has_two_long_turns = turns == 2 && left && k > long_row;
  if ((!left && !right) || (turns < least_turns && !has_two_long_turns)) return {};
  const bool takes_left = left && (!right || m >= n || has_two_long_turns);
  if (takes_left ? n < least_right : m < least_left) return {};
  if (takes_left) {
    const std::int64_t first = rows_of_first_tiles_sm90(tile, m, n, processors);
    return {first < m && (!has_two_long_turns || first * 2 <= m) ? first : 0, 0};
  }
  const std::int64_t down = ceil_div(m, tile.cluster_rows());
  const std::int64_t across = ceil_div(n, tile.cluster_columns());
  const std::int64_t band = lower_of(std::int64_t{band_sm90(false, true)}, down);
  const std::int64_t clusters = processors / tile.cluster;
  const std::int64_t first = lower_of(across, ceil_div(clusters, band)) * tile.cluster_columns();
  return {0, first < n ? first : 0};
}

// Clocks of an H200 for a step of K and the end of a tile of 8-bit elements; with 64 columns a step
// waits for what it loads. Smaller tiles bring
// more bytes from the second-level cache for an element of the output, and power limits the chip:
// `longer` is what that costs, in tenths of a percent.
struct TileClocksSm90 {
  std::int64_t step, end, longer;
};

constexpr TileClocksSm90 tile_clocks_sm90(const TileSm90& tile) {
  switch (tile.columns) {
    case 64: return {390, 1200, 120};
    case 128: return {520, 2000, 45};
    case 192: return {785, 3050, 15};
    default: return {1035, 4100, 0};
  }
}

// Clocks of an H200 for the turns of tiles of 8-bit elements. Products whose blocks do not share
// loads take 8 % longer.
constexpr std::int64_t clocks_sm90(const TileSm90& tile, const kernels::WorkOrder& work) {
  const auto [step, end, longer] = tile_clocks_sm90(tile);
  const std::int64_t one = work.steps * step + end;
  std::int64_t clocks = ceil_div(work.whole, work.clusters) * one;
  if (work.divided() > 0) {
    // Behind whole turns few parts take no less than six.
    const std::int64_t join = higher_of(join_clocks(tile, work.shared_tiles, work.sharing_clusters),
                                        join_clocks(tile, 1, 6));
    clocks += ceil_div(work.shared_tiles * work.steps, work.sharing_clusters) * step + end + join;
  }
  return clocks * (1000 + longer) / 1000 * (tile.cluster == 1 ? 108 : 100) / 100;
}

// The same for bfloat16 elements, in percent of what the tensor cores take for an element.
constexpr std::int64_t clocks_of_turns_sm90(const TileSm90& tile, std::int64_t turns) {
  const int percents[] = {190, 119, 110, 106};
  return turns * tile.rows * tile.columns * percents[tile.columns / 64 - 1];
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
  // Rows that only the large tile can fold late save 1 to 5 %.
  const bool has_late_rows = left == CoreElement::e4m3 && right == CoreElement::e4m3 &&
                             batch == 1 && first_folded_rows_sm90(large, m, n, k, processors) > 0;
  TileSm90 best = large;
  std::int64_t least = clocks(large) * (has_late_rows ? 990 : 1000);
  for (const int columns : std::array{192, 128, 64}) {
    const TileSm90 tile = tile_of_columns_sm90(columns, right, m, n);
    if (clocks(tile) * 1000 >= least) continue;
    best = tile;
    least = clocks(tile) * 1000;
  }
  return best;
}

// Working memory in which thread blocks add up tiles that are divided along K. The first `counters`
// words of 32 bits are 0 when the product starts.
struct PartMemory {
  void* data = nullptr;  // null: no tile is divided
  std::int64_t bytes = 0;
  std::int64_t counters = 0;
  const kernels::WorkOrder* work = nullptr;  // null: divided_work
};

// out[b] = finish(a[b] . b[b]^T). Both operands are FP8, of either kind, or both are bfloat16, or a
// has E4M3 codes with multipliers and b is bfloat16: then the sums are those of bfloat16. FP8
// products are summed with 14 bits over 128 elements of K and in float32 from there, bfloat16 ones
// in float32. Compute capability 9.0 only.
void multiply_sm90(const char* function, const RowScaled& a, const RowScaled& b,
                   const CoreFinish& finish, const CoreGate& gate, Stream stream,
                   const PartMemory& part_memory = {});

}  // namespace mxkern::cuda
