// gemm_with.h: the matrix product with a plan that the caller chooses, for tests and tuning.
#pragma once

#include "mxkern/gemm.h"
#include "plan_gemm.h"

namespace mxkern {

// What plan_gemm is asked about these operands, which are checked already.
GemmProblem gemm_problem(const GemmOperand& a, const BlockScaled& b, const Buffer& out);

// Products on the CPU are exact, of codes and scales: throws where folded ones are asked for, or an
// operand was prepared without its source.
void check_gemm_of_cpu(const GemmOperand& a, const GemmRightOperand& b, GemmPrecision precision);

// Each of the two alone.
void check_precision_of_cpu(const char* function, GemmPrecision precision);
void check_sources_for_cpu(const char* function, const GemmOperand& a, const GemmRightOperand& b);

// gemm on the CPU for checked operands with an output that is not empty. The plan is one for
// gemm_problem, with a unit that this machine runs.
void gemm_with(const GemmPlan& plan, const GemmOperand& a, const BlockScaled& b, const Buffer& out,
               const GemmOptions& options, Workspace workspace);

}  // namespace mxkern
