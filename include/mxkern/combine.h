// mxkern/combine.h: the rows that copies of a token became, added up to one row for each token.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mxkern/core/platform.h"
#include "mxkern/gemm.h"

namespace mxkern {

// out[t, :] = the sum of weights[i] * y[i, :] over all i with rows[i] = t, in the order of i:
// products and sums are float32, and the sum is rounded once to out's dtype. A token without rows
// becomes zeros. y [1, M, N] and out [1, T, N] of any dtypes. rows [M]: the token that each row of
// y is of, as GroupedGemmOptions::rows has it, or -1 for none; weights [M], or null, which is 1 for
// each; both on out's device. Deterministic, and the same bytes on every device, but for those of a
// NaN.
//
// The CPU throws InvalidArgument where rows has other numbers than -1 to T - 1. A CUDA device reads
// them when its turn comes; all of out becomes NaN where it has.
//
// workspace: at least combine_workspace_bytes on out's device, aligned to 64 on the CPU, to 256 on
// CUDA. It and out lie in memory of their own. Throws InvalidArgument.
MXKERN_API void combine(const Buffer& y, const std::int32_t* rows, const float* weights,
                        const Buffer& out, Workspace workspace, Stream stream = {});

// The working memory of combine for M rows and T tokens, in bytes.
MXKERN_API std::size_t combine_workspace_bytes(std::int64_t rows, std::int64_t tokens);

}  // namespace mxkern
