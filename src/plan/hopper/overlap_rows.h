// plan/hopper/overlap_rows.h: rows of operands that a product on Hopper makes ready itself, while
// it is under way.
#pragma once

#include <cstdint>

#include "plan/hopper/split_k.h"
#include "tuning/h200.h"
#include "mxkern/core/math.h"

namespace mxkern::cuda {

// Tiles come in bands of clusters that lie one below the other. Where rows of an operand are made
// by the product itself, the first tiles should need few of them; tiles that are divided stay the
// same, see TileOrder. Folded right rows need no other bands.
constexpr int band_sm90(bool left_is_late, bool right_is_late, bool is_folded = false) {
  namespace tuned = tuning::h200::late;
  return left_is_late                  ? tuned::band_of_left
         : right_is_late && !is_folded ? tuned::band_of_right
                                       : tuned::band;
}

// Rows of operands that have to be there when a product of one matrix starts, which makes the
// others itself; 0: all have to.
struct FirstRowsSm90 {
  std::int64_t left = 0, right = 0;
};

// Rows of an operand that the clusters' first tiles need, in bands as they come where its rows are
// late. A few clusters may begin with rows behind them, and wait; but where there are many turns,
// which need rows about as fast as they are made, what is ahead has to last. `height`: its rows of
// a cluster's tile; `across`: how many tiles have the same ones.
constexpr std::int64_t rows_of_first_tiles_sm90(std::int64_t rows, std::int64_t height,
                                                std::int64_t across, std::int64_t clusters) {
  const std::int64_t band = lower_of(std::int64_t{band_sm90(true, false)}, ceil_div(rows, height));
  const std::int64_t waiting = clusters % (band * across);
  const bool may_wait = waiting * 8 <= clusters && rows <= tuning::h200::late::most_rows_that_wait;
  const std::int64_t high = may_wait ? 0 : lower_of(band, waiting);
  return (clusters / (band * across) * band + high) * height;
}

// The same of the left operand.
constexpr std::int64_t first_left_rows_sm90(const TileSm90& tile, std::int64_t m, std::int64_t n,
                                            int processors) {
  return rows_of_first_tiles_sm90(m, tile.cluster_rows(),
                                  ceil_div(n, std::int64_t{tile.cluster_columns()}),
                                  processors / tile.cluster);
}

// The same where the right operand's codes are decoded: `tile` and `work` are of the transpose, and
// the left operand's rows are columns of its tiles. 0: all have to be there. Late ones save up to
// 3 % of two turns; where no cluster is left over to make them they were not tried.
constexpr std::int64_t first_rows_beside_decoded_sm90(const TileSm90& tile,
                                                      const kernels::WorkOrder& work,
                                                      std::int64_t m, std::int64_t n,
                                                      int processors) {
  namespace tuned = tuning::h200::late;
  const int clusters = work.fewest_clusters();
  if (m < tuned::least_left || n < tuned::least_right || clusters >= processors / tile.cluster ||
      tile.turns(1, n, m, processors) < tuned::least_turns_beside_decoded) {
    return 0;
  }
  const std::int64_t first = rows_of_first_tiles_sm90(
      m, tile.cluster_columns(), ceil_div(n, std::int64_t{tile.cluster_rows()}), clusters);
  return first < m ? first : 0;
}

// Rows of a folded left operand that have to be there when the product starts, which folds the
// others itself in tiles that have registers for it; 0: all have to.
constexpr std::int64_t first_folded_left_rows_sm90(const TileSm90& tile, std::int64_t m,
                                                   std::int64_t n, std::int64_t k, int processors) {
  namespace tuned = tuning::h200::late;
  constexpr std::int64_t columns_with_registers = 256;
  if (tile.columns != columns_with_registers || n < tuned::least_right || n > tuned::most_right) {
    return 0;
  }
  const std::int64_t turns = tile.turns(1, m, n, processors);
  if (turns < tuned::least_folded_turns) return 0;
  const std::int64_t first = first_left_rows_sm90(tile, m, n, processors);
  const std::int64_t least_times = k >= tuned::long_row || turns == 2 ? 2 : 3;
  return first * least_times <= round_up(m, tile.cluster_rows()) ? first : 0;
}

// The same of a folded right operand, whose rows come in the order of all products: those that the
// first tiles need, and a tile's more lest loads wait at once. Where the left operand has so few
// that the next turn needs more than are made in one, what is missing at the last one has to be
// ahead. Where turns need nearly as many and are short, or more, a second tile is ahead.
constexpr std::int64_t first_folded_right_rows_sm90(const TileSm90& tile, std::int64_t m,
                                                    std::int64_t n, std::int64_t k,
                                                    int processors) {
  namespace tuned = tuning::h200::late;
  constexpr std::int64_t columns_with_registers = 256, made_in_turn = tuned::made_in_turn;
  if (tile.columns != columns_with_registers || m < tuned::least_left_of_right ||
      n < tuned::least_right || tile.turns(1, m, n, processors) < tuned::least_folded_turns) {
    return 0;
  }
  const std::int64_t down = ceil_div(m, tile.cluster_rows());
  const std::int64_t band = lower_of(std::int64_t{band_sm90(false, true, true)}, down);
  const std::int64_t width = tile.cluster_columns();
  const kernels::WorkOrder work = work_sm90(tile, CoreElement::e4m3, 1, 1, m, n, k, processors);
  const std::int64_t in_turn = ceil_div(work.fewest_clusters(), band) * width;
  if (in_turn >= n) return 0;
  const std::int64_t turns_behind = ceil_div(n, in_turn) - 1;
  const std::int64_t missing = in_turn > made_in_turn ? n - turns_behind * made_in_turn : 0;
  const bool hurries = missing > 0 || (in_turn >= tuned::many_in_turn && k < tuned::long_row);
  const std::int64_t ahead =
      round_up(higher_of(in_turn, missing) + (hurries ? 2 : 1) * width, width);
  return ahead * 8 <= n * 7 ? ahead : 0;
}

// Given which operands have rows that can be made so. It is done to the one with more rows, if
// the other one has enough that there is time for it: the bands of the right one use its rows
// longer. In two turns of bfloat16 tiles rows are needed too soon. Folding takes less time, and
// bands that need few right rows at first need no fewer left ones: so right ones are late where
// there are as many.
constexpr FirstRowsSm90 first_rows_sm90(const TileSm90& tile, std::int64_t m, std::int64_t n,
                                        std::int64_t k, int processors, bool left, bool right) {
  // Late rows are of whole tiles. Where those of the same product with rows that are ready are
  // lower, other rows would be in the tiles that are divided along K, and get other bytes.
  left = left && m > 0 && tile.height(m) == tile.rows;
  namespace tuned = tuning::h200::late;
  if (tile.k == 128) {
    const std::int64_t of_right =
        right ? first_folded_right_rows_sm90(tile, m, n, k, processors) : 0;
    if (of_right > 0 && (!left || n >= m)) return {0, of_right};
    return {left ? first_folded_left_rows_sm90(tile, m, n, k, processors) : 0, 0};
  }
  if ((!left && !right) || tile.turns(1, m, n, processors) < tuned::least_turns) return {};
  const bool takes_left = left && (!right || m >= n);
  if (takes_left ? n < tuned::least_right : m < tuned::least_left) return {};
  if (takes_left) {
    const std::int64_t first = first_left_rows_sm90(tile, m, n, processors);
    return {first < m ? first : 0, 0};
  }
  const std::int64_t down = ceil_div(m, tile.cluster_rows());
  const std::int64_t across = ceil_div(n, tile.cluster_columns());
  const std::int64_t band = lower_of(std::int64_t{band_sm90(false, true)}, down);
  const std::int64_t clusters = processors / tile.cluster;
  const std::int64_t first = lower_of(across, ceil_div(clusters, band)) * tile.cluster_columns();
  return {0, first < n ? first : 0};
}

// The columns of the first rows of a folded left operand that are made ahead, where the product
// makes the others as well; 0: all are. It does if the rows of the first of two turns are half of
// all and long: then its first tiles need them as slowly as they are made. With more turns there is
// as much to make beside each, and right rows are needed too fast.
constexpr std::int64_t first_columns_sm90(const TileSm90& tile, const FirstRowsSm90& first,
                                          std::int64_t m, std::int64_t n, std::int64_t k,
                                          int processors) {
  namespace tuned = tuning::h200::late;
  if (tile.k != 128 || first.left == 0 || k < tuned::long_first_row) return 0;
  if (tile.turns(1, m, n, processors) != 2) return 0;
  return k / tuned::first_part / FirstRows::stretch * FirstRows::stretch;
}

}  // namespace mxkern::cuda
