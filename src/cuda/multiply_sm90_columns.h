// cuda/multiply_sm90_columns.h: products of row-scaled matrices on Hopper where each group of
// columns has an output of its own.
#pragma once

#include <cstdint>

#include "cuda/device_groups.h"
#include "cuda/multiply_sm90.h"
#include "plan/grouped_tiles_sm90.h"

namespace mxkern::cuda {

// a [1, M, K], b [1, N, K], K > 0, of one part each, both FP8 or both bfloat16; finish.out
// [groups.count, M, N]. All of it becomes NaN where ends decrease, lie beyond K, or
// are no multiples of 32 and not K. Sums are those of multiply_sm90 for each group's columns.
// Compute capability 9.0 only.
void multiply_sm90_columns(const char* function, const RowScaled& a, const RowScaled& b,
                           const DeviceGroups& groups, const CoreFinish& finish, Stream stream);

// The same with a tile that is not the one which would be chosen, for tests and tuning.
void multiply_sm90_columns_by(const TileSm90& tile, const char* function, const RowScaled& a,
                              const RowScaled& b, const DeviceGroups& groups,
                              const CoreFinish& finish, Stream stream);

// What an instance file of it launches.
struct ColumnsProductSm90 {
  const char* function;
  const RowScaled &left, &right;
  const DeviceGroups& groups;
  const CoreFinish& finish;
  TileSm90 tile;
  int processors;
  Stream stream;
};
template <class Left, class Right>
void launch_sm90_columns(const ColumnsProductSm90& product);

}  // namespace mxkern::cuda
