// plan/hopper/upcast.h: whether a product on Hopper decodes the codes of an operand itself.
#pragma once

#include <cstdint>

#include "plan/core_rows.h"
#include "plan/hopper/tiles.h"
#include "tuning/h200.h"

namespace mxkern::cuda {

// Whether codes can be loaded by the copy engine and scales in fours, for an output of this batch.
constexpr bool can_decode(const PlannedOperand& q, std::int64_t batch) {
  const ScaleIndex index = q.scale_index();
  // Matrices that are taken as one are swizzled as one if their tiles have no rows for padding.
  const bool is_one = q.shape.batch == batch || index.layout == ScaleLayout::row_major ||
                      q.shape.rows % ScaleIndex::tile_rows == 0;
  return is_made_under_way(q.scheme) && q.shape.columns > 0 && q.shape.columns % 16 == 0 &&
         q.alignment >= 16 && is_one &&
         are_scales_to_decode(q.scale_alignment, index, q.shape.batch);
}

// Whether it is the tile of bfloat16 elements that has code for it.
constexpr bool can_decode(const TileSm90& tile) { return tile.columns == 256; }

// With more turns than these decoding costs more than late rows.
inline constexpr std::int64_t most_decoded_turns = tuning::h200::decoded::most_turns;

// Whether a product that can decode takes less time so than with rows that are expanded, ahead of
// it or late. late_right: whether rows of the right operand would be late. Warps that make these
// have less time beside decoding, which is enough where their rows are used by many left ones.
constexpr bool is_better_decoded(std::int64_t turns, std::int64_t m, bool late_right) {
  namespace tuned = tuning::h200::decoded;
  return late_right ? turns <= tuned::most_turns && m >= tuned::least_rows
                    : turns <= tuned::most_turns_alone;
}

// How long it takes for an exact product of which the right operand's codes could be decoded,
// in clocks: of the tensor cores, and for rows that are expanded.
struct ExactClocks {
  // A thread block knows the largest scales of the rows of all its tiles: see DecodedRows.
  static constexpr std::int64_t most_turns = 32;

  static constexpr std::int64_t tiles(const TileSm90& tile, std::int64_t turns, std::int64_t k,
                                      bool decodes) {
    constexpr std::int64_t products_per_clock = 2048, percent = 100;
    const std::int64_t clocks =
        clocks_of_turns_sm90(tile, turns) * k / (products_per_clock * percent);
    return decodes ? clocks * tuning::h200::decoded::tiles_permille / 1000 : clocks;
  }

  // A byte of each element is read and two are written. Late rows hide half of it where clusters
  // are left over to make them: those of the first tiles are made ahead, and the others slow the
  // product down, which waits for them if nobody but a few warps makes them.
  static constexpr std::int64_t expand(std::int64_t rows, std::int64_t k, bool is_hidden) {
    return rows * k * 3 / tuning::h200::decoded::expanded_bytes_per_clock / (is_hidden ? 2 : 1);
  }
};

}  // namespace mxkern::cuda
