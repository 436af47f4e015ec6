// mxkern/kernels/gemm/group_walk.cuh: which rows of a grouped product the tiles have that a warp
// comes to, one after the other.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/kernels/gemm/group_tiles.h"

namespace mxkern::kernels {

// The rows of a tile, and which one it is from the left.
struct GroupTile {
  int group, first, count, right;
};

// For whole warps, which all get the same answers. A lane has one of 32 groups.
class GroupWalk {
 public:
  __device__ __forceinline__ explicit GroupWalk(const GroupTiles& tiles) : t_(tiles) { look(); }

  // Of all groups; less than 0: ends decrease or lie beyond the rows. Before the first tile; there
  // is at least one group.
  __device__ __forceinline__ static int count(const GroupTiles& tiles) {
    GroupWalk walk(tiles);
    while (walk.are_ordered_ && walk.base_ + 32 < tiles.groups.groups) walk.go_on();
    return walk.are_ordered_ ? walk.before_ + walk.tiles_ : -1;
  }

  // One that exists, and does not come before the last one asked for.
  __device__ __forceinline__ GroupTile at(int index) {
    while (index >= before_ + tiles_) go_on();
    const int own = index - before_ - (until_ - count_);
    const unsigned who = __ballot_sync(warp, own >= 0 && own < count_);
    const int from = __ffs(static_cast<int>(who)) - 1;
    const int begin = __shfl_sync(warp, begin_, from), end = __shfl_sync(warp, end_, from);
    const GroupTileOrder::Tile tile =
        t_.order.at(__shfl_sync(warp, own, from), t_.down(end - begin));
    const int first = begin + tile.down * t_.height;
    return {base_ + from, first, lower_of(end - first, t_.height), tile.right};
  }

 private:
  static constexpr unsigned warp = 0xFFFFFFFFu;

  __device__ __forceinline__ void go_on() {
    before_ += tiles_;
    base_ += 32;
    look();
  }

  __device__ __forceinline__ void look() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const bool exists = base_ + lane < t_.groups.groups;
    end_ = exists ? t_.groups.ends[base_ + lane] : 0;
    begin_ = __shfl_up_sync(warp, end_, 1);
    if (lane == 0) begin_ = last_end_;
    const bool is_right = !exists || (begin_ <= end_ && end_ <= t_.groups.rows);
    are_ordered_ = __all_sync(warp, is_right);
    count_ = exists && is_right ? t_.down(end_ - begin_) * t_.order.across : 0;
    until_ = count_;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int others = __shfl_up_sync(warp, until_, step);
      if (lane >= step) until_ += others;
    }
    tiles_ = __shfl_sync(warp, until_, 31);
    last_end_ = __shfl_sync(warp, end_, 31);
  }

  const GroupTiles& t_;
  int base_ = 0, before_ = 0;        // the first of the 32 groups, and tiles ahead of theirs
  int last_end_ = 0;                 // of the group ahead of the next 32
  int begin_, end_, count_, until_;  // of the lane's group; its tiles, and those up to its last one
  int tiles_;                        // of the 32 groups
  bool are_ordered_;
};

}  // namespace mxkern::kernels
