// mxkern/kernels/gemm/hopper/thread_block.cuh: a thread block of a product on Hopper: its barriers,
// and which of its warps does what.
#pragma once

#include <cstdint>

#include "mxkern/kernels/gemm/hopper/config.cuh"
#include "mxkern/kernels/ptx/cluster.cuh"
#include "mxkern/kernels/ptx/mbarrier.cuh"
#include "mxkern/kernels/ptx/tma.cuh"

namespace mxkern::kernels {

// One warpgroup loads, the others multiply and finish. Each goes through the block's tiles on its
// own; barriers in shared memory keep them together.
template <class Config>
struct BlockSm90 {
  static constexpr int warps = 4 * Config::groups;  // that multiply

  const CUtensorMap &left_map, &right_map, &out_map;
  unsigned char* shared;
  std::uint32_t base;  // its address
  int blocks, rank;    // of the cluster

  __device__ __forceinline__ BlockSm90(const CUtensorMap& left, const CUtensorMap& right,
                                       const CUtensorMap& out, unsigned char* memory)
      : left_map(left),
        right_map(right),
        out_map(out),
        shared(memory),
        base(__shfl_sync(0xFFFFFFFFu, ptx::shared_address(memory), 0)),
        blocks(static_cast<int>(ptx::cluster_size())),
        rank(static_cast<int>(ptx::rank_in_cluster())) {}

  __device__ __forceinline__ int cluster() const { return blockIdx.x >> (blocks - 1); }

  __device__ __forceinline__ typename Config::Finisher::Factors& factors() const {
    return *reinterpret_cast<typename Config::Finisher::Factors*>(shared + Config::factors_offset);
  }

  // What finishes the tiles of a warp that multiplies.
  __device__ __forceinline__ typename Config::Finisher finisher(const FinishParameters& p) const {
    using Finisher = typename Config::Finisher;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    return {p, out_map, shared + Config::staging_offset + warp * Finisher::staging_bytes,
            base + Config::loads_offset + warp * Finisher::loads * 8, lane};
  }

  // One thread.
  __device__ __forceinline__ void prefetch_maps(bool stores_boxes) const {
    ptx::prefetch_tensor_map(left_map);
    ptx::prefetch_tensor_map(right_map);
    if (stores_boxes) ptx::prefetch_tensor_map(out_map);
  }

  // One thread; then sync.
  __device__ __forceinline__ void init_barriers() const {
    for (int stage = 0; stage < Config::stages; ++stage) {
      ptx::mbarrier_init(base + Config::full_offset + stage * 8, 1);
      ptx::mbarrier_init(base + Config::empty_offset + stage * 8, warps * blocks);
      if (Config::cuts_steps) ptx::mbarrier_init(base + Config::cut_offset + stage * 8, 1);
    }
    for (int i = 0; i < warps * Config::Finisher::loads; ++i) {
      ptx::mbarrier_init(base + Config::loads_offset + i * 8, 1);
    }
    ptx::mbarrier_init(base + Config::factors_full_offset, 32);
    ptx::mbarrier_init(base + Config::factors_empty_offset, warps * 32);
    if (Config::decodes) ptx::mbarrier_init(base + Config::rows_full_offset, warps * 32);
    ptx::fence_mbarrier_init();
  }

  __device__ __forceinline__ void sync() const {
    if (blocks > 1) {
      ptx::cluster_sync();
    } else {
      __syncthreads();
    }
  }

  // Each warpgroup what it does: multiply(warpgroup), or, a warp each, load and load_factors; the
  // warps that are left, or all where has_tiles() is false, do_rest(warp).
  template <class HasTiles, class Load, class LoadFactors, class DoRest, class Multiply>
  __device__ __forceinline__ void take_roles(HasTiles&& has_tiles, Load&& load,
                                             LoadFactors&& load_factors, DoRest&& do_rest,
                                             Multiply&& multiply) const {
    // From one lane for all, so that the compiler keeps what follows from it in uniform registers.
    const int warpgroup = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x / 128), 0);
    if (warpgroup == Config::groups || !has_tiles()) {
      ptx::give_registers<Config::producer_registers>();
      const int thread = threadIdx.x % 128;
      if (thread / 32 > 1 || !has_tiles()) {
        do_rest(thread / 32);
      } else if (thread / 32 == 0) {
        load();
      } else if (thread / 32 == 1) {
        load_factors();
      }
      __syncwarp();
    } else {
      ptx::take_registers<Config::consumer_registers>();
      multiply(warpgroup);
    }
    // A block's memory stays until nobody in the cluster writes to it any more.
    if (blocks > 1) ptx::cluster_sync();
  }
};

}  // namespace mxkern::kernels
