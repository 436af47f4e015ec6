// mxkern/kernels/gemm/hopper/tile_scheduler.h: the tiles, and the parts of tiles, that a cluster
// computes.
#pragma once

#include "mxkern/core/math.h"

namespace mxkern::kernels {

// `count` steps of K of a tile, from `first` on.
struct TileWork {
  int index;  // of the tile; less than 0: there is no more work
  int first, count;
};

// Clusters take whole tiles in turns. What is left for a turn that would not keep all of them busy
// may be divided along K: the same number of clusters share a few adjacent tiles, each the same
// stretch of their steps. Stretches may end inside a tile, and then a cluster has parts of two.
struct WorkOrder {
  int tiles;
  int whole;  // tiles before this one are computed by a cluster alone
  int clusters;
  int steps;  // of K
  int unit;   // parts of a tile start at multiples of so many steps
  int shared_tiles = 1, sharing_clusters = 1;  // the first is no more than the second

  MXKERN_HOST_DEVICE constexpr TileWork first_part(int cluster) const { return part(cluster, -1); }
  MXKERN_HOST_DEVICE constexpr TileWork part_after(const TileWork& work, int cluster) const {
    const int tile = work.index - group_of(cluster).first_tile;
    return part(cluster, tile * units() + quotient_up(work.first + work.count, unit));
  }

  // The parts that a divided tile has, in the order of K.
  struct Parts {
    int own, count;
    int first_slot;  // for the sums of the first one; those of the others follow
  };
  MXKERN_HOST_DEVICE constexpr Parts parts_of(const TileWork& work, int cluster) const {
    const Group group = group_of(cluster);
    const int tile = work.index - group.first_tile;
    const int first = owner(group, tile * units());
    const int last = owner(group, (tile + 1) * units() - 1);
    // Along a group's stretch of K the cluster, the tile or both go up by one from part to part.
    const int slot = group.index * slots_of_group() + first + tile;
    return {group.rank - first, last - first + 1, slot};
  }

  // For sums of parts, and how many tiles are divided.
  MXKERN_HOST_DEVICE constexpr int slots() const {
    return quotient_up(divided(), shared_tiles) * slots_of_group();
  }
  MXKERN_HOST_DEVICE constexpr int divided() const { return tiles - whole; }

  // As few clusters as take no more turns: others would have no tile in the last one.
  MXKERN_HOST_DEVICE constexpr int fewest_clusters() const {
    return divided() > 0 ? clusters : quotient_up(tiles, quotient_up(tiles, clusters));
  }

 private:
  // In 32 bits: GPUs divide 64 bits slowly.
  MXKERN_HOST_DEVICE static constexpr int quotient_up(int a, int b) { return (a + b - 1) / b; }

  struct Group {
    int index, rank;        // and the cluster's place in it
    int first_tile, tiles;  // none where there are fewer groups
  };
  MXKERN_HOST_DEVICE constexpr int units() const { return quotient_up(steps, unit); }
  MXKERN_HOST_DEVICE constexpr int slots_of_group() const {
    return sharing_clusters + shared_tiles - 1;
  }
  MXKERN_HOST_DEVICE constexpr Group group_of(int cluster) const {
    const int index = cluster / sharing_clusters;
    const int first = whole + index * shared_tiles;
    return {index, cluster - index * sharing_clusters, first,
            lower_of(shared_tiles, tiles - first)};
  }
  MXKERN_HOST_DEVICE constexpr int begin_of(const Group& group, int rank) const {
    return rank * group.tiles * units() / sharing_clusters;
  }
  MXKERN_HOST_DEVICE constexpr int owner(const Group& group, int at) const {
    return ((at + 1) * sharing_clusters - 1) / (group.tiles * units());
  }
  // The part that starts at a unit of the group's stretch; less than 0: the cluster's first one.
  MXKERN_HOST_DEVICE constexpr TileWork part(int cluster, int at) const {
    if (whole == tiles) return {-1, 0, 0};
    const Group group = group_of(cluster);
    if (group.tiles <= 0) return {-1, 0, 0};
    const int end = begin_of(group, group.rank + 1);
    if (at < 0) at = begin_of(group, group.rank);
    if (at >= end) return {-1, 0, 0};
    const int tile = at / units();
    const int from = at - tile * units();
    const int to = lower_of(end - tile * units(), units());
    return {group.first_tile + tile, from * unit, lower_of(to * unit, steps) - from * unit};
  }
};

}  // namespace mxkern::kernels
