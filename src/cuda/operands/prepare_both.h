// cuda/operands/prepare_both.h: rows and columns of a tensor, quantized and folded.
#pragma once

#include "mxkern/prepare_both.h"

namespace mxkern::cuda {

// prepare_both of checked arguments to the form folded. codes: where codes and scales of the
// columns can go, which columns.source need not keep; in the workspace in that case.
void prepare_both(const Buffer& x, const PreparedOperand& rows, const PreparedOperand& columns,
                  const BlockScaled& codes, void* workspace, const BothSpreads& spreads,
                  const QuantizeOptions& options, Stream stream);

}  // namespace mxkern::cuda
