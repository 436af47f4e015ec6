// cuda/operands/upcast_operand.h: operands whose codes a product on Hopper decodes while it is
// under way: the left one, or the right one of a product that is computed as its transpose.
#pragma once

#include <cstdint>

#include "cuda/gemm/hopper/multiply.h"
#include "cuda/operands/row_scaled.h"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern::cuda {

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
