// cuda/relative_scales.h: what a left operand needs whose codes are decoded while it is multiplied.
#pragma once

#include <cstdint>

#include "cuda/fold.h"
#include "cuda/multiply_sm90.h"
#include "cuda/row_scaled.h"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern::cuda {

// Multipliers of the blocks of each row, a multiple of eight, and the rows' exponents.
constexpr RowScaledLayout relative_scales_layout(const Shape& shape) {
  const std::int64_t row_bytes = round_up(ceil_div(shape.columns, 32), 8) * 2;
  const std::int64_t rows = shape.batch * shape.rows;
  const std::int64_t exponents = round_up(rows * row_bytes, 256);
  const std::int64_t bytes = exponents + round_up(rows * std::int64_t{sizeof(std::int32_t)}, 256);
  return {row_bytes, row_bytes, shape.rows * row_bytes, exponents, bytes, bytes};
}

// Whether codes can be loaded by the copy engine, their product has the tile that decodes them, and
// that takes less time than expanding them: on an H200 decoding makes a product 2 to 3.6 % slower,
// and expanding is 4 % of one with 8192 columns.
inline bool can_decode(const BlockScaled& q, const Shape& out, int processors) {
  constexpr std::int64_t most_columns = 10240;
  if (q.scheme != Scheme::mxfp8_e4m3 || q.shape.columns == 0 || q.shape.columns % 16 != 0 ||
      out.columns > most_columns) {
    return false;
  }
  const TileSm90 tile = tile_sm90(CoreElement::bfloat16, CoreElement::bfloat16, out.batch, out.rows,
                                  out.columns, q.shape.columns, processors);
  return tile.columns == 256 && reinterpret_cast<std::uintptr_t>(q.codes) % 16 == 0;
}

// What multiply_sm90 takes, once relative_scales has filled the memory.
inline RowScaled decoded_view(const BlockScaled& q, void* memory) {
  const RowScaledLayout layout = relative_scales_layout(q.shape);
  auto* bytes = static_cast<std::uint8_t*>(memory);
  RowScaled view = {};
  view.element = CoreElement::e4m3;
  view.data = q.codes;
  view.batch = q.shape.batch;
  view.rows = q.shape.rows;
  view.columns = q.shape.columns;
  view.row_bytes = q.shape.columns;
  view.batch_bytes = q.shape.rows * q.shape.columns;
  view.exponents = reinterpret_cast<const std::int32_t*>(bytes + layout.exponents);
  view.multipliers = reinterpret_cast<const std::uint16_t*>(bytes);
  view.multiplier_row = layout.row_bytes / 2;
  return view;
}

// Fills the memory of relative_scales_layout(q.shape).bytes bytes.
void relative_scales(const char* function, const BlockScaled& q, void* memory, Stream stream,
                     kernels::Follows follows = kernels::Follows::behind,
                     const ZeroedWords& zeroed = {});

}  // namespace mxkern::cuda
