// check/folded.h: the checks of products whose precision is folded.
#pragma once

#include "mxkern/tensor/planned_operand.h"
#include "plan/gemm_cuda.h"

namespace mxkern {

// Whether an operand's elements under their block scales fit into 8-bit floats.
bool can_fold(const PlannedOperand& operand);

// Throws InvalidArgument where an operand has no folded form, and Unsupported where the device has
// no FP8 tensor cores that kernels are for. way_out: what to do instead.
void check_folded(const char* function, const PlannedOperand& a, const PlannedOperand& b,
                  const CudaGemmCapabilities& capabilities, const char* way_out);

}  // namespace mxkern
