// cuda/gemm/hopper/groups.h: products of row-scaled matrices on Hopper whose rows or columns
// belong to groups.
#pragma once

#include <cstdint>

#include "cuda/gemm/device_groups.h"
#include "cuda/gemm/hopper/multiply.h"
#include "plan/hopper/grouped_tiles.h"

namespace mxkern::cuda {

// a [1, M, K], b [groups.count, N, K], at least one matrix and K > 0, both FP8 or both bfloat16;
// finish.out [1, M, N]. Rows of no group become beta * out; all become NaN where ends decrease or
// lie beyond the rows. Sums are those of multiply_sm90. Compute capability 9.0 only.
void multiply_sm90_grouped(const char* function, const RowScaled& a, const RowScaled& b,
                           const DeviceGroups& groups, const CoreFinish& finish, Stream stream);

// a [1, M, K], b [1, N, K], K > 0, of one part each, both FP8 or both bfloat16; each group of
// columns has an output of its own, finish.out [groups.count, M, N]. All of it becomes NaN where
// ends decrease, lie beyond K, or are no multiples of 32 and not K. Sums are those of multiply_sm90
// for each group's columns. Compute capability 9.0 only.
void multiply_sm90_columns(const char* function, const RowScaled& a, const RowScaled& b,
                           const DeviceGroups& groups, const CoreFinish& finish, Stream stream);

// The same with tiles that are not those which would be chosen, for tests and tuning.
void multiply_sm90_grouped_by(const TileSm90& tile, int height, const char* function,
                              const RowScaled& a, const RowScaled& b, const DeviceGroups& groups,
                              const CoreFinish& finish, Stream stream);
void multiply_sm90_columns_by(const TileSm90& tile, const char* function, const RowScaled& a,
                              const RowScaled& b, const DeviceGroups& groups,
                              const CoreFinish& finish, Stream stream);

// The arguments of a launch, which the instance files compile.
struct GroupsProductSm90 {
  const char* function;
  const RowScaled &left, &right;
  const DeviceGroups& groups;
  const CoreFinish& finish;
  TileSm90 tile;
  int height;  // of tiles
  int processors;
  Stream stream;
};
template <class Left, class Right>
void launch_sm90_grouped(const GroupsProductSm90& product);
template <class Left, class Right>
void launch_sm90_columns(const GroupsProductSm90& product);

}  // namespace mxkern::cuda
