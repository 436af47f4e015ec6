// cuda/gemm/portable.h: the product of bfloat16 rows for every GPU from sm_80 on.
#pragma once

#include "cuda/gemm/device_groups.h"
#include "cuda/operands/row_scaled.h"
#include "mxkern/core/device.h"
#include "plan/portable_tile.h"

namespace mxkern::cuda {

// What the product does with finish: see CoreFinish. Both operands are bfloat16 rows, such as
// expand makes them of anything; out may lie anywhere. K = 0 leaves beta * out + bias.
void multiply_portable(const char* function, const RowScaled& a, const RowScaled& b,
                       const CoreFinish& finish, const CoreGate& gate, Stream stream);

// The same of rows that belong to groups: a [1, M, K], b [groups.count, N, K], finish.out [1, M,
// N]. Rows of no group become beta * out; all become NaN where ends decrease or lie beyond the
// rows.
void multiply_portable_grouped(const char* function, const RowScaled& a, const RowScaled& b,
                               const DeviceGroups& groups, const CoreFinish& finish, Stream stream);

// The same of columns that belong to groups: a [1, M, K], b [1, N, K], finish.out [groups.count, M,
// N]. All of it becomes NaN where ends decrease, lie beyond K, or are no multiples of
// 32 and not K.
void multiply_portable_columns(const char* function, const RowScaled& a, const RowScaled& b,
                               const DeviceGroups& groups, const CoreFinish& finish, Stream stream);

}  // namespace mxkern::cuda
