// cuda/operands/expand.h: operands of any kind as bfloat16 under one power of two a row, exactly.
#pragma once

#include <cstdint>
#include <variant>

#include "cuda/operands/fold.h"
#include "cuda/operands/row_scaled.h"
#include "check/gemm_operand.h"
#include "mxkern/gemm.h"
#include "plan/decode/problem.h"

namespace mxkern::cuda {

// The largest elements of a row of power-of-two scales are moved below 2^(this + 1), where sums of
// 2^25 products of two rows do not overflow. Every element is exact whose block's scale lies at
// most 130 octaves below the row's largest.
inline constexpr int expanded_exponent = 30;

// What expand leaves in `memory`, which has expanded_layout(operand).bytes bytes; or the operand.
// The tensor scale of NVFP4 is not in it: it goes to CoreFinish.
inline RowScaled expanded_view(const GemmOperand& operand, void* memory) {
  const Shape shape = shape_of(operand);
  RowScaled view = {};
  view.element = CoreElement::bfloat16;
  view.batch = shape.batch;
  view.rows = shape.rows;
  view.columns = shape.columns;
  if (is_expanded(operand)) {
    const Buffer& x = std::get<Buffer>(operand);
    view.data = x.data;
    if (x.batch_stride == 0) view.batch = 1;  // all matrices are the same one
    view.row_bytes = round_up(x.row_stride * 2, 16);
    view.batch_bytes = round_up(x.batch_stride * 2, 16);
    return view;
  }
  const RowScaledLayout layout = expanded_layout(operand);
  auto* bytes = static_cast<std::uint8_t*>(memory);
  view.data = bytes;
  view.row_bytes = layout.row_bytes;
  view.batch_bytes = layout.batch_bytes;
  if (has_exponents(operand)) {
    view.exponents = reinterpret_cast<const std::int32_t*>(bytes + layout.exponents);
  }
  view.parts = parts_of(operand);
  view.part_bytes = layout.part_bytes;
  return view;
}

// A left operand as the tokens of a product of few: plain, or what expand leaves in `memory`.
inline Buffer tokens_of(const GemmOperand& left, void* memory) {
  if (const auto* plain = std::get_if<Buffer>(&left)) return *plain;
  const PlannedTensor x = mxkern::tokens_of(left);
  return {memory, x.dtype, x.shape, x.row_stride, x.batch_stride, quantized_of(left)->device};
}

struct ExpandTask {
  const GemmOperand* operand = nullptr;  // null: none
  void* memory = nullptr;
  FirstRows first = {};  // only so many rows of one matrix
};

// Expands up to two operands.
void expand(const char* function, const ExpandTask& first, const ExpandTask& second, Stream stream,
            const ZeroedWords& zeroed = {});

}  // namespace mxkern::cuda
