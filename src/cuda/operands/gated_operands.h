// cuda/operands/gated_operands.h: what an exact product needs that runs only where a folded one
// would lose too much, which the device finds out.
#pragma once

#include "cuda/operands/expand.h"
#include "cuda/operands/row_scaled.h"

namespace mxkern::cuda {

// Does up to two tasks in one launch, or in two if schemes differ. It returns at once where it is
// not its turn: `left` and `right` are the folded operands whose spreads say so. Operands are of
// schemes that can be folded, and lie on the current device.
void gated_operands(const char* function, const ExpandTask& first, const ExpandTask& second,
                    const CoreGate& gate, const RowScaled& left, const RowScaled& right,
                    Stream stream);

}  // namespace mxkern::cuda
