// ops/gemm_with.h: the matrix product with a plan that the caller chooses, for tests and tuning.
#pragma once

#include "mxkern/gemm.h"
#include "plan/gemm_cpu.h"

namespace mxkern {

// gemm on the CPU for checked operands with an output that is not empty. The plan is one for
// cpu_problem of them, with a unit that this machine runs.
void gemm_with(const CpuGemmPlan& plan, const GemmOperand& a, const GemmRightOperand& b,
               const Buffer& out, const GemmOptions& options, Workspace workspace);

}  // namespace mxkern
