// mxkern/kernels/gemm/column_groups.cuh: which columns of a grouped product belong to which group.
#pragma once

#include <cstdint>

namespace mxkern::kernels {

// Columns of both operands that lie one behind the other belong to groups: those from ends[i - 1],
// or 0, to ends[i] to group i, those behind the last end to none.
struct ColumnEnds {
  static constexpr int piece = 32;  // every end is a multiple of it, or `columns`

  const std::int32_t* ends;  // on the device
  int groups;
  int columns;  // of all groups, and of none
};

struct ColumnRange {
  int begin, end;

  __device__ __forceinline__ int count() const { return end - begin; }
};

__device__ __forceinline__ ColumnRange columns_of(const ColumnEnds& all, int group) {
  return {group == 0 ? 0 : all.ends[group - 1], all.ends[group]};
}

// Whether ends are as they have to be. For whole warps, which all get the same answer.
__device__ __forceinline__ bool are_ordered(const ColumnEnds& all) {
  bool are_right = true;
#pragma unroll 1
  for (int group = static_cast<int>(threadIdx.x) % 32; group < all.groups; group += 32) {
    const ColumnRange range = columns_of(all, group);
    are_right &= range.begin <= range.end && range.end <= all.columns &&
                 (range.end % ColumnEnds::piece == 0 || range.end == all.columns);
  }
  return __all_sync(0xFFFFFFFFu, are_right);
}

}  // namespace mxkern::kernels
