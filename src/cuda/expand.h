// cuda/expand.h: operands of any kind as bfloat16 under one power of two a row, exactly.
#pragma once

#include <cstdint>

#include "cuda/fold.h"
#include "cuda/row_scaled.h"
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

// Whether the operand is taken as it lies: bfloat16 rows that start on 16 bytes.
bool is_expanded(const GemmOperand& operand);

// Everything is 0 where the operand is taken as it lies. Spreads are not part of it.
RowScaledLayout expanded_layout(const GemmOperand& operand);

// What expand leaves in `memory`, which has expanded_layout(operand).bytes bytes; or the operand.
// The tensor scale of NVFP4 is not in it: it goes to CoreFinish.
RowScaled expanded_view(const GemmOperand& operand, void* memory);

struct ExpandTask {
  const GemmOperand* operand = nullptr;  // null: none
  void* memory = nullptr;
};

// Expands up to two operands in one launch. With a gate that asks, `left` and `right` are the
// folded operands whose spreads answer, and the launch returns at once where it is not its turn.
void expand(const char* function, const ExpandTask& first, const ExpandTask& second,
            const CoreGate& gate, const RowScaled* left, const RowScaled* right, Stream stream);

}  // namespace mxkern::cuda
