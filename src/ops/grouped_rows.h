// ops/grouped_rows.h: grouped products of rows that are copies of rows of the left operand.
#pragma once

#include <cstddef>

#include "mxkern/grouped_gemm.h"
#include "plan/grouped.h"

namespace mxkern {

// The left operand of the product: of a's kind and of out's rows, without addresses. Where a was
// prepared it is what a product of this precision reads.
GemmOperand copies_without_memory(const GemmOperand& a, const Buffer& out, GemmPrecision precision);

// The memory that copies take, and on the CPU a copy of the groups' ends and of the rows.
std::size_t copies_bytes(const GemmOperand& a, const Buffer& out, GemmPrecision precision);

// grouped_gemm and grouped_gemm_workspace_bytes where options.rows is given. Checked arguments,
// with strides that all mean something. gated: on a CUDA device alone.
void grouped_gemm_of_copies(const GemmOperand& a, const GemmRightOperand& b, const Groups& groups,
                            const Buffer& out, const GroupedGemmOptions& options,
                            Workspace workspace, Stream stream, const GatedOutput* gated = nullptr);
std::size_t copies_workspace_bytes(const GemmOperand& a, const GemmRightOperand& b,
                                   const Groups& groups, const Buffer& out,
                                   const GroupedGemmOptions& options);

// grouped_gemm_workspace_bytes without rows, of operands that may have no addresses yet.
std::size_t product_workspace_bytes(const GemmOperand& a, const GemmRightOperand& b,
                                    const Groups& groups, const Buffer& out,
                                    const GroupedGemmOptions& options);

}  // namespace mxkern
