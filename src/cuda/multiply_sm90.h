// cuda/multiply_sm90.h: products of row-scaled matrices on Hopper: FP8 and bfloat16 tensor cores.
#pragma once

#include <array>
#include <cstdint>

#include "cuda/divide_sm90.h"
#include "cuda/expand.h"
#include "cuda/first_rows_sm90.h"
#include "cuda/row_scaled.h"
#include "mxkern/core/math.h"

namespace mxkern::cuda {

// Clocks of an H200 for a step of K and the end of a tile of 8-bit elements; with 64 columns a step
// waits for what it loads. Smaller tiles bring more bytes from the second-level cache for an
// element of the output, and power limits the chip: `longer` is what that costs, in tenths of a
// percent.
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
                             batch == 1 &&
                             first_folded_left_rows_sm90(large, m, n, k, processors) > 0;
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

// How the folded and the exact product of [m, k] and [n, k] are cut in the kernel that computes
// either, with tiles of one size.
struct EitherTilesSm90 {
  bool is_better;  // than a kernel for each, and one for operands between them
  TileSm90 folded, exact;
  kernels::WorkOrder exact_work;
};

// In the largest tile a folded product takes up to 2 % longer there, while the chip is cool, and
// kernels that have nothing to do 2.5 to 11 us: long products are better off with these. The exact
// product may be divided along K only as it is in a kernel of its own, lest its bytes be others.
constexpr EitherTilesSm90 either_tiles_sm90(CoreElement left, CoreElement right, std::int64_t m,
                                            std::int64_t n, std::int64_t k, int processors) {
  constexpr int largest_columns = 256;
  constexpr std::int64_t most_steps = 512;  // that a multiprocessor takes one after the other
  constexpr CoreElement wide = CoreElement::bfloat16;
  const TileSm90 folded = tile_sm90(left, right, 1, m, n, k, processors);
  const TileSm90 exact = tile_of_columns_sm90(folded.columns, wide, m, n);
  const TileSm90 alone = tile_sm90(wide, wide, 1, m, n, k, processors);
  const kernels::WorkOrder work = work_sm90(alone, wide, 1, 1, m, n, k, processors);
  const bool has_its_tile = alone.columns == exact.columns;
  const bool is_short = folded.columns < largest_columns ||
                        folded.turns(1, m, n, processors) * ceil_div(k, folded.k) <= most_steps;
  return {is_short && (has_its_tile || work.divided() == 0), folded, exact,
          has_its_tile ? work : whole_work(exact, step_unit_sm90(wide), 1, m, n, k, processors)};
}

// Working memory in which thread blocks add up tiles that are divided along K. The first `counters`
// words of 32 bits are 0 when the product starts.
struct PartMemory {
  void* data = nullptr;  // null: no tile is divided
  std::int64_t bytes = 0;
  std::int64_t counters = 0;
  const kernels::WorkOrder* work = nullptr;  // null: divided_work
};

// out[b] = finish(a[b] . b[b]^T). Both operands are FP8, of either kind, or both are bfloat16, or
// one has E4M3 codes with scales and the other is bfloat16: then the sums are those of bfloat16,
// and, where b has the codes, the product is computed as its transpose. FP8 products are summed
// with 14 bits over 128 elements of K and in float32 from there, bfloat16 ones in float32. Compute
// capability 9.0 only.
void multiply_sm90(const char* function, const RowScaled& a, const RowScaled& b,
                   const CoreFinish& finish, const CoreGate& gate, Stream stream,
                   const PartMemory& part_memory = {});

// An operand that is folded, and that the kernel expands where the gate asks for the exact product:
// task.operand is codes, or null where it was expanded ahead.
struct EitherOperand {
  RowScaled folded, expanded;
  ExpandTask task;
};

// multiply_sm90 of the folded operands, or of the expanded ones, as either_tiles_sm90 cuts them;
// the gate decides which. The operands are one matrix each. progress: four words that are 0.
void multiply_either_sm90(const char* function, const EitherOperand& a, const EitherOperand& b,
                          std::uint32_t* progress, const CoreFinish& finish, const CoreGate& gate,
                          Stream stream, const PartMemory& part_memory = {});

}  // namespace mxkern::cuda
