// cuda/relative_scales_operand.h: scales of codes that a product decodes, as kernels take them.
#pragma once

#include "cuda/folded_rows.h"
#include "cuda/relative_scales.h"
#include "mxkern/kernels/relative_scales.cuh"

namespace mxkern::cuda {

inline kernels::RelativeScales relative_scales_operand(const BlockScaled& q, void* memory) {
  const RowScaled view = decoded_view(q, memory);
  kernels::RelativeScales s = {};
  s.batch = q.shape.batch;
  s.rows = q.shape.rows;
  s.scales = q.scales;
  s.scale_index = q.scale_index();
  s.scales_in_words = scales_in_words(s.scales, s.scale_index);
  s.multipliers = const_cast<std::uint16_t*>(view.multipliers);
  s.row_elements = view.multiplier_row;
  s.exponents = const_cast<std::int32_t*>(view.exponents);
  return s;
}

}  // namespace mxkern::cuda
