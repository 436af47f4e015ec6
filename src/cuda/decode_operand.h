// cuda/decode_operand.h: operands whose codes a product on Hopper decodes while it is under way:
// the left one, or the right one of a product that is computed as its transpose.
#pragma once

#include <cstdint>

#include "cuda/multiply_sm90.h"
#include "cuda/row_scaled.h"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern::cuda {

// Whether codes can be loaded by the copy engine and scales in fours, for an output of this batch.
inline bool can_decode(const BlockScaled& q, std::int64_t batch) {
  const ScaleIndex index = q.scale_index();
  // Matrices that are taken as one are swizzled as one if their tiles have no rows for padding.
  const bool is_one = q.shape.batch == batch || index.layout == ScaleLayout::row_major ||
                      q.shape.rows % ScaleIndex::tile_rows == 0;
  return is_made_under_way(q.scheme) && q.shape.columns > 0 && q.shape.columns % 16 == 0 &&
         starts_on(q.codes, 16) && is_one && are_scales_to_decode(q.scales, index, q.shape.batch);
}

// Whether it is the tile of bfloat16 elements that has code for it.
inline bool can_decode(const TileSm90& tile) { return tile.columns == 256; }

// With more turns than these decoding costs more than late rows.
inline constexpr std::int64_t most_decoded_turns = 8;

// Whether a product that can decode takes less time so than with rows that are expanded, ahead of
// it or late: on an H200 a turn of tiles takes 1 to 3 us more, and what is saved is expanding,
// less what late rows hide of it, and the wait for a kernel ahead. late_right: whether rows of the
// right operand would be late. Warps that make these have less time beside decoding, which is
// enough where their rows are used by many left ones.
constexpr bool is_better_decoded(std::int64_t turns, std::int64_t m, bool late_right) {
  constexpr std::int64_t few_turns = 4, least_rows = 3072;
  return late_right ? turns <= most_decoded_turns && m >= least_rows : turns <= few_turns;
}

// How long an H200 takes for an exact product of which the right operand's codes could be decoded,
// in clocks: of the tensor cores, and for rows that are expanded.
struct ExactClocks {
  // A thread block knows the largest scales of the rows of all its tiles: see DecodedRows.
  static constexpr std::int64_t most_turns = 32;

  // To decode takes 6.5 % of the time of the tiles.
  static constexpr std::int64_t tiles(const TileSm90& tile, std::int64_t turns, std::int64_t k,
                                      bool decodes) {
    constexpr std::int64_t products_per_clock = 2048, percent = 100;
    const std::int64_t clocks =
        clocks_of_turns_sm90(tile, turns) * k / (products_per_clock * percent);
    return decodes ? clocks * 1065 / 1000 : clocks;
  }

  // A byte of each element is read and two are written. Late rows hide half of it where clusters
  // are left over to make them: those of the first tiles are made ahead, and the others slow the
  // product down, which waits for them if nobody but a few warps makes them.
  static constexpr std::int64_t expand(std::int64_t rows, std::int64_t k, bool is_hidden) {
    constexpr std::int64_t bytes_per_clock = 1900;
    return rows * k * 3 / bytes_per_clock / (is_hidden ? 2 : 1);
  }
};

// What multiply_sm90 takes: codes and scales as they lie.
inline RowScaled decoded_view(const BlockScaled& q) {
  RowScaled view = {};
  view.element = CoreElement::e4m3;
  view.data = q.codes;
  view.batch = q.shape.batch;
  view.rows = q.shape.rows;
  view.columns = q.shape.columns;
  view.row_bytes = q.shape.columns;
  view.batch_bytes = q.shape.rows * q.shape.columns;
  view.scales = q.scales;
  view.scale_index = q.scale_index();
  return view;
}

}  // namespace mxkern::cuda
