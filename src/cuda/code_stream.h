// cuda/code_stream.h: how the rows of a quantized operand go through a kernel.
#pragma once

#include <algorithm>

#include "cuda/launch.h"
#include "mxkern/kernels/code_stream.cuh"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern::cuda {

// The groups and chunks of rows that are not copied to shared memory.
inline kernels::CodeStream plain_stream(const Shape& shape) {
  kernels::CodeStream s = {};
  s.batch = shape.batch;
  s.rows = shape.rows;
  s.columns = shape.columns;
  // So many rows at a time that a stage holds as many columns as it may; at least a warp a row.
  s.log2_team = 8;
  while (s.log2_team > 5 && (s.columns << (9 - s.log2_team)) <= kernels::stream_columns) {
    --s.log2_team;
  }
  s.groups = ceil_div(s.batch * s.rows, s.team_rows());
  s.chunks =
      static_cast<int>(std::max<std::int64_t>(ceil_div(s.columns, kernels::stream_columns), 1));
  return s;
}

inline kernels::CodeStream code_stream(const char* function, const BlockScaled& q) {
  check_device_pointer(function, "codes", q.codes, q.device);
  check_device_pointer(function, "scales", q.scales, q.device);
  kernels::CodeStream s = plain_stream(q.shape);
  s.codes = q.codes;
  s.code_row_bytes = code_row_bytes(q.scheme, q.shape.columns);
  s.scales = q.scales;
  s.scale_index = q.scale_index();
  s.bits = facts_of(q.scheme).bits;
  s.piece_bytes = is_aligned(s.codes, s.code_row_bytes, 16)  ? 16
                  : is_aligned(s.codes, s.code_row_bytes, 4) ? 4
                                                             : 1;
  const auto columns = std::min<std::int64_t>(s.columns, kernels::stream_columns);
  s.row_pitch = static_cast<int>(round_up(ceil_div(columns * s.bits, 8), 16));
  const std::int64_t blocks = s.scale_index.blocks;
  const bool in_words = q.scale_layout == ScaleLayout::swizzled || blocks % 4 == 0;
  if (in_words && is_aligned(s.scales, 0, 4) && blocks <= kernels::most_staged_scales) {
    s.scale_words = static_cast<int>(ceil_div(blocks, 4));
  }
  s.stage_bytes = static_cast<int>(round_up(s.team_rows() * (s.row_pitch + s.scale_words * 4), 16));
  return s;
}

}  // namespace mxkern::cuda
