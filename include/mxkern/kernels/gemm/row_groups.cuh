// mxkern/kernels/gemm/row_groups.cuh: which rows of a grouped product a thread block has.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/kernels/gemm/row_groups.h"

namespace mxkern::kernels {

// The rows of a thread block.
struct GroupRows {
  int group;         // GroupEnds::groups: they belong to none
  int first, count;  // of all rows; 0: none are left
  bool are_ordered;  // else ends decrease or lie beyond the rows, and no row belongs to a group
};

// The rows that come in so many-th place where each group's are taken Size at a time. For whole
// warps, which all get the same answer.
template <int Size>
__device__ __forceinline__ GroupRows rows_in_place(const GroupEnds& all, int place) {
  constexpr unsigned warp = 0xFFFFFFFFu;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  GroupRows found = {all.groups, 0, 0, true};
  int end_before = 0, places_before = 0;
  // What belongs to none is the last group.
#pragma unroll 1
  for (int base = 0; base <= all.groups; base += 32) {
    const int end = base + lane < all.groups ? all.ends[base + lane] : all.rows;
    int begin = __shfl_up_sync(warp, end, 1);
    if (lane == 0) begin = end_before;
    if (__any_sync(warp, end < begin || end > all.rows)) {
      // Places go through all rows then.
      const std::int64_t first = static_cast<std::int64_t>(place) * Size;
      const auto left = lower_of<std::int64_t>(all.rows - first, Size);
      return {all.groups, static_cast<int>(lower_of<std::int64_t>(first, all.rows)),
              static_cast<int>(higher_of<std::int64_t>(left, 0)), false};
    }
    const int places = (end - begin + Size - 1) / Size;
    int until = places;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int others = __shfl_up_sync(warp, until, step);
      if (lane >= step) until += others;
    }
    const int own = place - places_before - (until - places);
    const unsigned who = __ballot_sync(warp, own >= 0 && own < places);
    if (who != 0) {
      const int from = __ffs(static_cast<int>(who)) - 1;
      found.group = base + from;
      found.first = __shfl_sync(warp, begin + own * Size, from);
      found.count = __shfl_sync(warp, lower_of(end - begin - own * Size, Size), from);
    }
    end_before = __shfl_sync(warp, end, 31);
    places_before += __shfl_sync(warp, until, 31);
  }
  return found;
}

}  // namespace mxkern::kernels
