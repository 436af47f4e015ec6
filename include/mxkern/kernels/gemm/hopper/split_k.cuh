// mxkern/kernels/gemm/hopper/split_k.cuh: adds the sums of the parts of a tile that was divided
// along K.
#pragma once

#include <cstdint>

#include "mxkern/kernels/gemm/hopper/tile_scheduler.h"
#include "mxkern/kernels/ptx/progress.cuh"

namespace mxkern::kernels {

// Where the sums of parts meet.
struct PartSums {
  float4* sums;             // in slots of WorkOrder
  std::uint32_t* counters;  // of each warp of each divided tile: 0 before and after a product
};

// What the warps of a thread block have to know of its part of a tile.
struct PartPlace {
  TileWork work;
  WorkOrder::Parts parts;
  int slot_size;
  float4* sums;  // of the block in slot 0
  std::uint32_t* counters;
};

// A cluster has parts of two tiles at most. What they are takes divisions, so that one thread finds
// out before anything else, for all warps of the thread block.
struct PartTable {
  PartPlace part[2];

  // The block has `warps` warps with `size` of their sums a slot, and is the `rank`th of `blocks`
  // of a cluster.
  __device__ void fill(const WorkOrder& order, const PartSums& p, int cluster, int rank, int blocks,
                       int warps, int size) {
    TileWork work = order.first_part(cluster);
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
      part[i].work = work;
      if (work.index < 0) continue;
      part[i].parts = order.parts_of(work, cluster);
      part[i].slot_size = blocks * warps * size;
      part[i].sums = p.sums + rank * warps * size;
      part[i].counters = p.counters + ((work.index - order.whole) * blocks + rank) * warps;
      work = order.part_after(work, cluster);
    }
  }

  __device__ __forceinline__ TileWork first() const { return part[0].work; }
  __device__ __forceinline__ TileWork after(const TileWork& work) const {
    if (work.index == part[0].work.index) return part[1].work;
    return {-1, 0, 0};
  }
  __device__ __forceinline__ const PartPlace& of(const TileWork& work) const {
    return part[work.index == part[0].work.index ? 0 : 1];
  }
};

// A warp leaves the sums of its part in memory. The one that comes last adds those of all parts, in
// the order of K, so that the result is the same whoever it is; and nobody waits, not even for
// thread blocks that have not started.
template <int Count>
struct PartJoiner {
  using Sums = float[Count];
  static constexpr int words = Count / 4;
  static constexpr int size = words * 32;

  const PartPlace& at;
  int warp, lane;

  // Whether this warp has the tile's sums now.
  __device__ __forceinline__ bool join(Sums& sums) const {
    if (at.parts.count == 1) return true;
    store(sums);
    __syncwarp();
    std::uint32_t before = 0;
    if (lane == 0) before = ptx::add_one(at.counters + warp);
    before = __shfl_sync(0xFFFFFFFFu, before, 0);
    __syncwarp();
    if (before != static_cast<unsigned>(at.parts.count - 1)) return false;
    if (lane == 0) at.counters[warp] = 0;
    // The first two may change places.
    const bool stays = at.parts.own < 2;
    if (!stays) {
#pragma unroll
      for (int i = 0; i < Count; ++i) sums[i] = -0.0f;  // what is added to it stays as it is
    }
#pragma unroll 1
    for (int part = 0; part < at.parts.count; ++part) {
      if (!stays || part != at.parts.own) add(sums, part);
    }
    return true;
  }

 private:
  __device__ __forceinline__ float4* place(int part) const {
    const auto slot = static_cast<std::int64_t>(at.parts.first_slot + part);
    return at.sums + slot * at.slot_size + warp * size + lane;
  }
  __device__ __forceinline__ void store(const Sums& sums) const {
    float4* to = place(at.parts.own);
#pragma unroll
    for (int i = 0; i < words; ++i) {
      const float* from = sums + i * 4;
      __stcg(to + i * 32, make_float4(from[0], from[1], from[2], from[3]));
    }
  }
  __device__ __forceinline__ void add(Sums& sums, int part) const {
    constexpr int chunk = words % 16 == 0 ? 16 : words % 12 == 0 ? 12 : 8;  // on their way at once
    static_assert(words % chunk == 0);
    const float4* from = place(part);
#pragma unroll
    for (int first = 0; first < words; first += chunk) {
      float4 more[chunk];
#pragma unroll
      for (int i = 0; i < chunk; ++i) more[i] = __ldcg(from + (first + i) * 32);
#pragma unroll
      for (int i = 0; i < chunk; ++i) {
        float* to = sums + (first + i) * 4;
        to[0] += more[i].x;
        to[1] += more[i].y;
        to[2] += more[i].z;
        to[3] += more[i].w;
      }
    }
  }
};

}  // namespace mxkern::kernels
