// cuda/operands/prepare_operand.h: operands of gemm made ready on a CUDA device; arguments are
// checked already.
#pragma once

#include "mxkern/core/device.h"
#include "mxkern/numerics/scale_rule.h"
#include "mxkern/tensor/prepared_operand.h"
#include "plan/gemm_cuda.h"

namespace mxkern::cuda {

// Fills out.data from out.source.
void prepare_operand(const PreparedOperand& out, Stream stream);

// Quantizes x to out.data, folded, and to out.source where it has memory.
void quantize_prepared(const Buffer& x, const PreparedOperand& out, ScaleRule rule, Stream stream);

}  // namespace mxkern::cuda
