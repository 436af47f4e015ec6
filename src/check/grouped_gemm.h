// check/grouped_gemm.h: the checks of the arguments of grouped_gemm.
#pragma once

#include "mxkern/grouped_gemm.h"
#include "mxkern/tensor/planned_operand.h"

namespace mxkern {

// Shapes, devices, pointers and overlaps; the ends are not read. Throws InvalidArgument.
void check_grouped_gemm(const GemmOperand& a, const GemmRightOperand& b, const Groups& groups,
                        const Buffer& out, const GroupedGemmOptions& options);

// What a plan is made of: shapes, dtypes, schemes, forms. Memory is not looked at.
void check_grouped_gemm_kinds(const PlannedOperand& a, const PlannedOperand& b,
                              const Groups& groups, const PlannedTensor& out,
                              const GroupedGemmOptions& options);

// `bytes` of memory that is aligned and nobody else's. Arguments that are checked.
void check_grouped_workspace(Workspace workspace, std::size_t bytes, const GemmOperand& a,
                             const GemmRightOperand& b, const Groups& groups, const Buffer& out,
                             const GroupedGemmOptions& options);

}  // namespace mxkern
