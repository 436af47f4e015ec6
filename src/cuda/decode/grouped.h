// cuda/decode/grouped.h: rows that belong to groups times block-scaled weights of their groups.
#pragma once

#include <cstdint>

#include "cuda/gemm/device_groups.h"
#include "cuda/decode/multiply.h"
#include "cuda/operands/row_scaled.h"
#include "plan/grouped.h"

namespace mxkern::cuda {

// Rows of no group become beta * out; all become NaN where ends decrease or lie beyond the rows.
// x [1, M, K] in 16 bits, rows anywhere; weights [count, N, K]; finish.out [1, M, N]. workspace:
// copied_tokens_bytes(x), aligned to 128. gated: see GatedOutput. Compute capability 9.0 to 11.x.
void multiply_grouped(const char* function, const Buffer& x, const ReorderedWeights& weights,
                      const DeviceGroups& groups, const CoreFinish& finish, Workspace workspace,
                      Stream stream, const std::int32_t* exponents = nullptr,
                      const GatedOutput* gated = nullptr);

// The same by a plan that is not the one which would be chosen, for tests and tuning.
void multiply_grouped_by(const DecodePlan& plan, const char* function, const Buffer& x,
                         const ReorderedWeights& weights, const DeviceGroups& groups,
                         const CoreFinish& finish, Workspace workspace, Stream stream,
                         const std::int32_t* exponents = nullptr,
                         const GatedOutput* gated = nullptr);

// The same of folded rows, E4M3 of one matrix, and weights of MXFP4: on FP8 tensor cores of Hopper,
// with the error of folded products. memory: interleaved_bytes of the rows, aligned to 256. copies:
// of which rows of x these are.
void multiply_grouped_folded(const DecodePlan& plan, const char* function, const RowScaled& x,
                             const ReorderedWeights& weights, const DeviceGroups& groups,
                             const CoreFinish& finish, void* memory, Stream stream,
                             const RowCopies& copies = {});

}  // namespace mxkern::cuda
