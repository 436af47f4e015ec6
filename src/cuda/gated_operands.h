// cuda/gated_operands.h: what an exact product needs that runs only where a folded one would lose
// too much, which the device finds out.
#pragma once

#include "cuda/expand.h"
#include "cuda/row_scaled.h"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern::cuda {

// A left operand whose codes the product decodes: see relative_scales.
struct DecodeTask {
  const BlockScaled* operand = nullptr;  // null: none
  void* memory = nullptr;
};

// Does up to three tasks in one launch, or in two if schemes differ. It returns at once where it is
// not its turn: `left` and `right` are the folded operands whose spreads say so. Operands are of
// schemes that can be folded, and lie on the current device.
void gated_operands(const char* function, const ExpandTask& first, const ExpandTask& second,
                    const DecodeTask& decoded, const CoreGate& gate, const RowScaled& left,
                    const RowScaled& right, Stream stream);

}  // namespace mxkern::cuda
