// cuda/gemm/grouped_gemm.h: grouped products on a CUDA device; arguments are checked already.
#pragma once

#include "mxkern/grouped_gemm.h"
#include "plan/gemm_cuda.h"
#include "plan/grouped.h"

namespace mxkern::cuda {

// As on a device of such capabilities, which out's device has at least. options.rows: only where
// the plan of the copies copies_rows. gated: null where the outputs themselves are wanted.
void grouped_gemm_as(const CudaGemmCapabilities& capabilities, const GemmOperand& a,
                     const GemmRightOperand& b, const Groups& groups, const Buffer& out,
                     const GroupedGemmOptions& options, Workspace workspace, Stream stream,
                     const GatedOutput* gated = nullptr);

}  // namespace mxkern::cuda
