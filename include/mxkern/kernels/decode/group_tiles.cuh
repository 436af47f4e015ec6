// mxkern/kernels/decode/group_tiles.cuh: the tiles of the weights of all groups that have rows, as
// those who multiply them take turns.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/kernels/gemm/row_groups.h"

namespace mxkern::kernels::few {

// Each thread of the thread block looks at some of the ends: whether one of these is smaller than
// the one before or lies beyond the rows.
__device__ __forceinline__ bool finds_wrong_end(const GroupEnds& all) {
  bool is_wrong = false;
  for (int i = static_cast<int>(threadIdx.x); i < all.groups; i += static_cast<int>(blockDim.x)) {
    const int before = i > 0 ? all.ends[i - 1] : 0, end = all.ends[i];
    is_wrong = is_wrong || end < before || end > all.rows;
  }
  return is_wrong;
}

// A tile of the weights of a group, and rows that are multiplied with it.
struct GroupTile {
  int group, down;
  int first, count;  // of all rows
};

// Walks through tiles of weights in one order for all teams: each group's rows are taken Size at a
// time, and with each Size rows go all tiles of the group's weights. A team gets the tile `first`
// of this order and every `step`-th behind it. Whole warps call it, all lanes get the same answer,
// and ends have to be in order. Each lane has the end of one of 32 groups.
template <int Size>
class GroupTiles {
 public:
  __device__ __forceinline__ GroupTiles(const GroupEnds& all, int tiles_down, int first, int step)
      : all_(all), tiles_down_(tiles_down) {
    place_ = first / tiles_down, down_ = first - place_ * tiles_down;
    place_step_ = step / tiles_down, down_step_ = step - place_step_ * tiles_down;
    if (all.groups > 0) read();
  }

  // The team's next tile. False: there is none.
  __device__ __forceinline__ bool next(GroupTile& tile) {
    while (place_ >= places_before_ + same(until_, 31)) {
      if (base_ + 32 >= all_.groups) return false;
      places_before_ += same(until_, 31), end_before_ = same(end_, 31), base_ += 32;
      read();
    }
    const int begin = end_ - rows_, own = place_ - places_before_ - (until_ - places());
    const unsigned who = __ballot_sync(all_lanes, own >= 0 && own < places());
    const int lane = __ffs(static_cast<int>(who)) - 1;
    tile.group = base_ + lane, tile.down = down_;
    tile.first = same(begin + own * Size, lane);
    tile.count = same(lower_of(rows_ - own * Size, Size), lane);
    place_ += place_step_, down_ += down_step_;
    if (down_ >= tiles_down_) down_ -= tiles_down_, ++place_;
    return true;
  }

 private:
  static constexpr unsigned all_lanes = 0xFFFFFFFFu;

  __device__ __forceinline__ static int same(int value, int lane) {
    return __shfl_sync(all_lanes, value, lane);
  }
  __device__ __forceinline__ int places() const { return (rows_ + Size - 1) / Size; }

  __device__ __forceinline__ void read() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    end_ = all_.ends[lower_of(base_ + lane, all_.groups - 1)];
    const int begin = __shfl_up_sync(all_lanes, end_, 1);
    rows_ = end_ - (lane == 0 ? end_before_ : begin);
    until_ = places();
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int others = __shfl_up_sync(all_lanes, until_, step);
      if (lane >= step) until_ += others;
    }
  }

  const GroupEnds& all_;
  int tiles_down_;
  int place_, down_, place_step_, down_step_;  // of the next tile
  int base_ = 0, end_before_ = 0, places_before_ = 0;
  int end_ = 0, rows_ = 0, until_ = 0;  // of the lane's group; until_: places up to its last one
};

}  // namespace mxkern::kernels::few
