// mxkern/kernels/decode/gemm.cuh: few tokens times reordered weights, at the speed of the weights.
//
// out[m, n] = x[m, :] . w[n, :]. Weights are the side of 16 of mma.m16n8k16, tokens that of 8. A
// warp takes tiles of 32 rows x 128 columns of weights, one or two below each other. The warps of a
// thread block share a few tiles of rows and take turns along K; the thread blocks of a cluster
// have a part of K each. All parts are added in a fixed order, through shared memory. Weights come
// in bulk copies into a ring of each warp; tokens beside them, or into a ring of the warps that
// take the same columns. Codes become bfloat16 or half in registers; block scales multiply the
// float32 sums of their blocks, or the weights.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/decode/epilogue.cuh"
#include "mxkern/kernels/decode/multiply.cuh"
#include "mxkern/kernels/decode/parameters.h"
#include "mxkern/kernels/decode/output_tile.cuh"
#include "mxkern/kernels/decode/tokens.cuh"
#include "mxkern/kernels/ptx/elect.cuh"
#include "mxkern/kernels/ptx/tma.cuh"

namespace mxkern::kernels {
namespace few {

// Where a turn's weights and tokens lie, and the barriers that say that they are there.
struct Stage {
  std::uint32_t tiles, barrier;
  std::uint32_t x, x_barrier;
};

}  // namespace few

// Grid: see Place.
template <class K>
__global__ void __launch_bounds__(K::threads, K::shape().tenants())
    gemm_decode_kernel(const __grid_constant__ DecodeParameters p,
                       const __grid_constant__ CUtensorMap map) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr int tile_bytes = K::tile_bytes, scale_bytes = DecodeShape::scale_bytes;
  extern __shared__ __align__(1024) std::uint8_t shared[];
  const std::uint32_t base = ptx::shared_address(shared);
  // The same in all lanes, which the compiler shall know.
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rank = static_cast<int>(blockIdx.x) & ((1 << p.log2_ranks) - 1);
  const few::Place place = few::place_of<K>(p);
  const auto first_down = static_cast<int>(place.first_down), batch = static_cast<int>(place.batch);
  const int first_token = place.first_token;
  // Of the thread block, along K: a tile for each part in turn.
  const int first = p.tiles * rank >> p.log2_ranks;
  const int tiles = (p.tiles * (rank + 1) >> p.log2_ranks) - first;
  const int parts = 1 << p.log2_parts, active = p.row_tiles / K::warp_tiles << p.log2_parts;
  const int part = warp & (parts - 1);
  const int first_tile = (warp >> p.log2_parts) * K::warp_tiles;  // of the thread block's row tiles
  const int down = first_down + first_tile;
  const bool multiplies = warp < active;
  const bool has_rows = multiplies && down < p.tiles_down;
  const int own_tiles = lower_of(p.tiles_down - down, K::warp_tiles);
  const int turns = has_rows ? (tiles - part + parts - 1) >> p.log2_parts : 0;
  const std::uint8_t* weights = p.weights + batch * p.weight_batch_bytes;

  // Barriers: of the warps' rings; a stage of shared tokens is full, and free again; sums from the
  // cluster.
  const std::uint32_t full = few::same(base + warp * p.stages * 8);
  const std::uint32_t x_full = base + active * p.stages * 8, x_free = x_full + p.x_stages * 8;
  const std::uint32_t received = x_free + p.x_stages * 8;
  // Stages of tokens, then a ring of each warp. Sums take their place.
  constexpr int x_bytes = K::shape().x_stage_bytes();
  const int box_bytes = p.group_tokens * (DecodeLayout::tile_columns * 2);
  const std::uint32_t memory = base + DecodeShape::barrier_bytes;
  const std::uint32_t ring =
      few::same(memory + (K::shares ? p.x_stages : active * p.stages) * x_bytes +
                warp * K::warp_tiles * (p.stages * tile_bytes + scale_bytes));
  const std::uint32_t floats = ring + p.stages * (K::warp_tiles * tile_bytes);
  const int step = few::same(parts * tile_bytes);
  const int row_bytes = p.tiles * tile_bytes;
  const std::uint8_t* from =
      few::same(weights + static_cast<std::uint64_t>(
                              static_cast<std::uint32_t>(down * p.tiles + first + part)) *
                              tile_bytes);
  const std::uint64_t policy = few::evict_first_policy();
  const int fetch_bytes = few::same(own_tiles * tile_bytes + (K::shares ? 0 : box_bytes));
  const auto fetch = [&](std::uint32_t to, const std::uint8_t* tiles, std::uint32_t barrier) {
    ptx::mbarrier_expect(barrier, fetch_bytes);
    few::copy_bulk(to, tiles, tile_bytes, barrier, policy);
#pragma unroll
    for (int i = 1; i < K::warp_tiles; ++i) {
      if (i < own_tiles) {
        few::copy_bulk(to + i * tile_bytes, tiles + i * row_bytes, tile_bytes, barrier, policy);
      }
    }
  };
  const few::Tokens<K> tokens_at{map, static_cast<int>(few::same(first_token)),
                                 static_cast<int>(few::same(p.x_batch_bytes == 0 ? 0 : batch))};

  let_dependents_start();
  if (first_down >= p.tiles_down) {
    // Here to hold a place: see DecodePlan::idle_groups.
    wait_for_kernels_ahead();
    return;
  }
  // Warps that take the same columns.
  const int sharing = ceil_div(lower_of(p.tiles_down - first_down, p.row_tiles), K::warp_tiles);
  if (ptx::elect()) {
    if (multiplies) {
#pragma unroll 1
      for (int i = 0; i < p.stages; ++i) ptx::mbarrier_init(full + i * 8, 1);
    }
    ptx::fence_mbarrier_init();
    // Weights do not depend on what the kernel before this one computes. But one tile each: the
    // first tokens would wait for all that is asked for before them.
    if (turns > 0) fetch(ring, from, full);
    if (warp == 0) {
      ptx::prefetch_tensor_map(map);
#pragma unroll 1
      for (int i = 0; i < p.x_stages; ++i) {
        ptx::mbarrier_init(x_full + i * 8, 1);
        ptx::mbarrier_init(x_free + i * 8, sharing);
      }
      ptx::mbarrier_init(received, 1);
      ptx::fence_mbarrier_init();
    }
  }
  __syncwarp();
  if (p.log2_ranks > 0) few::cluster_arrive_relaxed();
  few::Finish<K> finish{
      p,           weights,
      batch,       first_down,
      first_token, place.count,
      memory,      base + p.shared_bytes - K::shape().inbox_bytes(p.row_tiles, p.log2_ranks),
      received,    rank};
  finish.prepare();
  __syncthreads();

  few::WarpSums<K> sums = {};
  if (turns > 0) {
    // Turns that are left, of the warp and of those whose tiles are to be fetched.
    int own = few::same(turns), to_fetch = own - p.stages;
    // Tokens: a ring of the warps that share them, or beside the warp's weights.
    const int x_step = K::shares ? few::same(parts * x_bytes) : x_bytes;
    const int x_barrier_step = K::shares ? few::same(parts * 8) : 8;
    const few::Stage first_stage{ring, full,
                                 few::same(memory + (K::shares ? part : warp * p.stages) * x_bytes),
                                 K::shares ? few::same(x_full + part * 8) : full};
    const auto stage_at = [&](int i) {
      return few::Stage{first_stage.tiles + i * (K::warp_tiles * tile_bytes),
                        first_stage.barrier + i * 8, first_stage.x + i * x_step,
                        first_stage.x_barrier + i * x_barrier_step};
    };
    const int x_free_offset = few::same(p.x_stages * 8);
    const int column_step = few::same(parts * DecodeLayout::tile_columns);
    int column = few::same((first + part) * DecodeLayout::tile_columns);
    wait_for_kernels_ahead();
    if (ptx::elect()) {
      const int group = K::shares ? warp >> p.log2_parts : 0, groups = K::shares ? sharing : 1;
#pragma unroll 1
      for (int i = 0; i < turns && i < p.stages; ++i) {
        const few::Stage stage = stage_at(i);
        if (i > 0) fetch(stage.tiles, from + i * step, stage.barrier);
        if (i % groups == group) {
          if constexpr (K::shares) ptx::mbarrier_expect(stage.x_barrier, box_bytes);
          tokens_at.load(stage.x, stage.x_barrier, column + i * column_step);
        }
      }
    }
    // Of what is fetched next.
    column += p.stages * column_step;
    const std::uint8_t* next = from + p.stages * step;
    __syncwarp();
    const auto take_turn = [&](const few::Stage& stage, int parity) {
      ptx::mbarrier_wait(stage.barrier, parity);
      if constexpr (K::shares) ptx::mbarrier_wait(stage.x_barrier, parity);
      few::multiply_turn<K>(sums, stage.tiles, stage.x, floats, lane);
      __syncwarp();
      if (ptx::elect()) {
        if (to_fetch > 0) fetch(stage.tiles, next, stage.barrier);
        // Of those that share a stage, the last one to leave it has it filled again.
        if constexpr (K::shares) {
          if (few::arrive_last(stage.x_barrier + x_free_offset) && to_fetch > 0) {
            ptx::mbarrier_expect(stage.x_barrier, box_bytes);
            tokens_at.load(stage.x, stage.x_barrier, column);
          }
        } else if (to_fetch > 0) {
          tokens_at.load(stage.x, stage.barrier, column);
        }
      }
      column += column_step, next += step;
      --own, --to_fetch;
    };
    if constexpr (K::shape().stages() == 2) {
      // Each with code of its own, in which a stage's place is a constant.
#pragma unroll 1
      for (int parity = 0;; parity ^= 1) {
        take_turn(first_stage, parity);
        if (own <= 0) break;
        take_turn(stage_at(1), parity);
        if (own <= 0) break;
      }
    } else {
      few::Stage stage = first_stage;
#pragma unroll 1
      for (int parity = 0; own > 0;) {
        take_turn(stage, parity);
        stage.tiles += K::warp_tiles * tile_bytes, stage.barrier += 8;
        stage.x += x_step, stage.x_barrier += x_barrier_step;
        if (stage.tiles == floats) stage = first_stage, parity ^= 1;
      }
    }
  }

  // What the kernel before this one wrote is visible to all threads, and the sums take the place of
  // the rings, which are read to the end.
  wait_for_kernels_ahead();
  finish.prepare_more();
  __syncthreads();
  if (multiplies) {
#pragma unroll
    for (int h = 0; h < K::warp_tiles; ++h) {
      const std::uint32_t to =
          memory + ((first_tile + h << p.log2_parts) + part) * K::shape().sum_bytes();
#pragma unroll
      for (int t = 0; t < K::tokens / 8; ++t) {
        few::put_sums<K>(to + t * 8 * DecodeShape::sum_stride, sums[h], t, lane);
      }
    }
  }
  if (p.log2_ranks > 0) {
    few::cluster_wait();  // the others have started, and their inboxes and barriers exist
    if (threadIdx.x == 0) finish.expect();
  }
  __syncthreads();
  if (p.log2_ranks > 0) {
    finish.send();
    ptx::mbarrier_wait(received, 0);
  }
  finish.store();
#elif defined(__CUDA_ARCH__)
  __trap();  // compiled for the list of architectures, and never chosen elsewhere
#endif
}

}  // namespace mxkern::kernels
