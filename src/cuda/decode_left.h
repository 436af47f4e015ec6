// cuda/decode_left.h: left operands whose codes a product on Hopper decodes while it is under way.
#pragma once

#include <cstdint>

#include "cuda/fold.h"
#include "cuda/multiply_sm90.h"
#include "cuda/row_scaled.h"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern::cuda {

// Whether codes can be loaded by the copy engine and scales in fours, and the product, of an output
// of this shape, has the tile that decodes.
inline bool can_decode(const BlockScaled& q, const Shape& out, int processors) {
  constexpr std::int64_t most_columns = 10240;
  const ScaleIndex index = q.scale_index();
  const bool is_swizzled = index.layout == ScaleLayout::swizzled;
  // Matrices that are taken as one are swizzled as one if their tiles have no rows for padding.
  const bool is_one = q.shape.batch == out.batch || !is_swizzled ||
                      q.shape.rows % ScaleIndex::tile_rows == 0;
  if (q.scheme != Scheme::mxfp8_e4m3 || q.shape.columns == 0 || q.shape.columns % 16 != 0 ||
      !is_one || !(is_swizzled || index.blocks % 4 == 0) || out.columns > most_columns ||
      !starts_on(q.codes, 16) || !starts_on(q.scales, 4)) {
    return false;
  }
  const TileSm90 tile = tile_sm90(CoreElement::bfloat16, CoreElement::bfloat16, out.batch, out.rows,
                                  out.columns, q.shape.columns, processors);
  return tile.columns == 256;
}

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
