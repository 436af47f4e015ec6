// cpu/gemm/task.h: the arguments of a matrix product as the CPU's loops take them.
#pragma once

#include "cpu/gemm/gemm.h"
#include "check/gemm_operand.h"

namespace mxkern {

// The sums are multiplied by options.alpha, the tensor scales and the factor. panels: of b, where
// it was prepared as these, else null.
cpu::GemmTask make_task(const GemmOperand& a, const BlockScaled& b, const void* panels,
                        const Buffer& out, const GemmOptions& options, double factor = 1.0);
// b is plain, of bfloat16.
cpu::GemmTask make_task(const GemmOperand& a, const Buffer& b, const Buffer& out,
                        const GemmOptions& options);

}  // namespace mxkern
