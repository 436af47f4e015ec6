// cuda/multiply_sm90.h: products of row-scaled matrices on Hopper: FP8 and bfloat16 tensor cores.
#pragma once

#include "cuda/row_scaled.h"

namespace mxkern::cuda {

// How a product is cut: a thread block computes `rows` x `columns` of the output, `k` elements of
// the sums at a time with `stages` of them under way; `cluster` blocks share loads.
struct TileSm90 {
  int rows, columns, k, stages, cluster;
};

// The tile for a product of [batch, m, k] and [batch, n, k].
TileSm90 tile_sm90(CoreElement left, CoreElement right, std::int64_t batch, std::int64_t m,
                   std::int64_t n, std::int64_t k, int processors);

// out[b] = finish(a[b] . b[b]^T). Both operands are FP8, of either kind, or both are bfloat16. FP8
// products are summed with 14 bits over 128 elements of K and in float32 from there, bfloat16 ones
// in float32. Compute capability 9.0 only.
void multiply_sm90(const char* function, const RowScaled& a, const RowScaled& b,
                   const CoreFinish& finish, const CoreGate& gate, Stream stream);

}  // namespace mxkern::cuda
