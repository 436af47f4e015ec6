// cuda/expand.h: operands of any kind as bfloat16 under one power of two a row, exactly.
#pragma once

#include <cstdint>
#include <variant>

#include "cuda/fold.h"
#include "cuda/row_scaled.h"
#include "gemm_operand.h"
#include "mxkern/gemm.h"

namespace mxkern::cuda {

// The largest elements of a row of power-of-two scales are moved below 2^(this + 1), where sums of
// 2^25 products of two rows do not overflow. Every element is exact whose block's scale lies at
// most 130 octaves below the row's largest.
inline constexpr int expanded_exponent = 30;

// How many bfloat16 an element takes: their sum is the element.
constexpr int expanded_parts(DType dtype) {
  return dtype == DType::bfloat16 ? 1 : dtype == DType::float16 ? 2 : 3;
}

// Whether the operand is taken as it lies: bfloat16 rows that start and end on 16 bytes. (Memory
// may end with the last row, and an asynchronous copy of fewer bytes counts as a read of 16.)
inline bool is_expanded(const GemmOperand& operand) {
  const auto* x = std::get_if<Buffer>(&operand);
  return x != nullptr && x->dtype == DType::bfloat16 && starts_on_16(*x) &&
         x->shape.columns % 8 == 0;
}

inline int parts_of(const GemmOperand& operand) {
  const auto* plain = std::get_if<Buffer>(&operand);
  return plain != nullptr ? expanded_parts(plain->dtype) : 1;
}

// Rows under scales that are floats and of 16-bit elements need no power of two of their own.
inline bool has_exponents(const GemmOperand& operand) {
  if (const auto* plain = std::get_if<Buffer>(&operand)) return plain->dtype == DType::float32;
  return facts_of(std::get<BlockScaled>(operand).scheme).scales_are_powers;
}

// Everything is 0 where the operand is taken as it lies. Spreads are not part of it.
inline RowScaledLayout expanded_layout(const GemmOperand& operand) {
  if (is_expanded(operand)) return {};
  const Shape shape = shape_of(operand);
  const int parts = parts_of(operand);
  const std::int64_t part_bytes = round_up(shape.columns * 2, 128);
  const std::int64_t row_bytes = part_bytes * parts;
  const std::int64_t rows = shape.batch * shape.rows;
  const std::int64_t exponents = round_up(rows * row_bytes, 256);
  const std::int64_t exponent_bytes =
      has_exponents(operand) ? round_up(rows * std::int64_t{sizeof(std::int32_t)}, 256) : 0;
  const std::int64_t bytes = exponents + exponent_bytes;
  return {row_bytes, part_bytes, shape.rows * row_bytes, exponents, bytes, bytes};
}

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

struct ExpandTask {
  const GemmOperand* operand = nullptr;  // null: none
  void* memory = nullptr;
  FirstRows first = {};  // only so many rows of one matrix
};

// Whether a product can expand or fold rows of q itself: from codes and scales in whole words, of
// rows that are long beside what each of them takes.
inline bool can_be_late(const BlockScaled& q) {
  constexpr std::int64_t least_columns = 4096;
  return is_made_under_way(q.scheme) && q.shape.batch == 1 && q.shape.columns % 128 == 0 &&
         q.shape.columns >= least_columns && starts_on(q.codes, 16) && starts_on(q.scales, 4);
}

// Expands up to two operands.
void expand(const char* function, const ExpandTask& first, const ExpandTask& second, Stream stream,
            const ZeroedWords& zeroed = {});

}  // namespace mxkern::cuda
