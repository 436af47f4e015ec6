// mxkern/kernels/gemm/hopper/gemm.cuh: products of row-scaled matrices on Hopper's tensor cores.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/gate.cuh"
#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/gemm/hopper/thread_block.cuh"
#include "mxkern/kernels/gemm/hopper/config.cuh"
#include "mxkern/kernels/gemm/hopper/epilogue.cuh"
#include "mxkern/kernels/gemm/hopper/split_k.cuh"
#include "mxkern/kernels/gemm/hopper/overlap.cuh"
#include "mxkern/kernels/gemm/hopper/overlap_expand.cuh"
#include "mxkern/kernels/gemm/hopper/overlap_fold.cuh"
#include "mxkern/kernels/gemm/hopper/producer.cuh"
#include "mxkern/kernels/gemm/hopper/tile_order.cuh"
#include "mxkern/kernels/gemm/hopper/mainloop.cuh"
#include "mxkern/kernels/gemm/hopper/tile_scheduler.h"

namespace mxkern::kernels {

struct GemmSm90Parameters {
  TileOrder order;  // of the output's tiles
  WorkOrder work;   // of tiles in that order
  PartSums part_sums;
  int parts;      // of the left operand, each multiplied by all steps of K
  int tile_rows;  // of all tiles: a multiple of 16, at most Config::rows
  bool left_batched, right_batched;
  SpreadGate gate;
  FinishParameters finish;
  LeftScales left_scales;  // where the left operand is decoded
  // Left and right; of a product that folds, of the only one with late rows, on side late_side.
  LateRows late[2];
  int late_side;
};

// A thread block, and the tiles and parts of tiles that it computes.
template <class Config>
struct GemmSm90 : BlockSm90<Config> {
  static_assert(Config::cluster == 2, "a thread block's number less its last bit is its cluster's");
  using Block = BlockSm90<Config>;
  using Block::base, Block::blocks, Block::cluster, Block::factors, Block::rank, Block::shared,
      Block::warps;
  using Joiner = PartJoiner<Config::columns / 2>;

  const GemmSm90Parameters& p;

  __device__ __forceinline__ GemmSm90(const GemmSm90Parameters& parameters, const CUtensorMap& left,
                                      const CUtensorMap& right, const CUtensorMap& out,
                                      unsigned char* memory)
      : Block(left, right, out, memory), p(parameters) {}

  __device__ __forceinline__ PartTable& parts() const {
    return *reinterpret_cast<PartTable*>(shared + Config::parts_offset);
  }
  __device__ __forceinline__ TileWork tile(int index) const {
    if (index < p.work.whole) return {index, 0, p.work.steps};
    return p.work.divided() > 0 ? parts().first() : TileWork{-1, 0, 0};
  }
  __device__ __forceinline__ TileWork first() const { return tile(cluster()); }
  __device__ __forceinline__ TileWork after(const TileWork& work) const {
    return work.index < p.work.whole ? tile(work.index + p.work.clusters) : parts().after(work);
  }

  // Calls compute(work) for the block's tiles and parts of tiles.
  template <class Compute>
  __device__ __forceinline__ void for_each_tile(Compute&& compute) const {
    for (TileWork work = first(); work.index >= 0; work = after(work)) {
      compute(work);
    }
  }

  __device__ __forceinline__ TileCorner corner_of(int index) const {
    TileOrder::Tile tile = Config::has_late_rows ? p.order.late_at(index) : p.order.at(index);
    if constexpr (Config::is_transposed) tile = {tile.right, tile.down, tile.batch};
    const int down = Config::shares_left ? tile.down : tile.down * blocks + rank;
    const int right = Config::shares_left ? tile.right * blocks + rank : tile.right;
    return {down * p.tile_rows, right * Config::columns, tile.batch};
  }

  __device__ __forceinline__ void load() const {
    LoadSm90<Config> load{
        this->left_map, this->right_map, base, blocks, rank, p.tile_rows / Config::left_boxes,
        p.left_batched, p.right_batched, {}};
    [[maybe_unused]] LateRowsSeen<Config> seen(p.late, p.late_side);
    for_each_tile([&](const TileWork& work) {
      const TileCorner corner = corner_of(work.index);
      seen.wait(corner);
      load.tile(corner, p.parts, work,
                [&](int step, int end) { return seen.wait(corner, step, end); });
    });
  }

  // Thread blocks that the tiles leave over make late rows with all their warps. (Asked with
  // cluster(), the compiler spills registers in the code for tiles.)
  __device__ __forceinline__ bool has_tiles() const {
    return !Config::has_late_rows || static_cast<int>(blockIdx.x) < p.work.clusters * blocks;
  }

  // A warp: rows of the one operand that has some to fold; or to expand, of side `first` and then
  // of the other.
  __device__ __forceinline__ void make_late_rows(int first) const {
    if constexpr (Config::folds_late_rows) {
      if (p.late[0].exist()) fold_late_rows(p.late[0], Config::log2_rows + p.late_side);
    } else if constexpr (Config::has_late_rows) {
#pragma unroll 1
      for (int i = 0; i < 2; ++i) {
        const int side = i ^ first;
        if (!p.late[side].exist()) continue;
        LateRowMaker{p.late[side], side == 0 ? Config::rows : Config::columns,
                     static_cast<int>(threadIdx.x % 32)}
            .run();
      }
    }
  }

  // One warp: fetches each tile's factors once the others are through with those before.
  __device__ __forceinline__ void load_factors() const {
    const CommonFactor common = common_factor(p.finish);
    std::uint32_t parity = 1;
    // Elements without exponents may be of any size.
    const bool are_checked = Config::rounded == RoundedFirst::large && p.finish.left_exponents &&
                             p.finish.right_exponents;
    const PowerRange range = Config::rounded == RoundedFirst::all ? folded_powers
                             : are_checked                        ? expanded_powers
                                                                  : no_powers;
    [[maybe_unused]] int number = 0;
    if constexpr (Config::decodes) ptx::mbarrier_wait(base + Config::rows_full_offset, 0);
    [[maybe_unused]] LateRowsSeen<Config> seen(p.late, p.late_side);
    for_each_tile([&](const TileWork& work) {
      const TileCorner corner = corner_of(work.index);
      ptx::mbarrier_wait(base + Config::factors_empty_offset, parity);
      seen.wait(corner);
      factors().fetch(p.finish, common, corner, range, [&](int row) {
        if constexpr (Config::decodes) {
          constexpr int count = DecodedRows::count;
          return decoded_rows(row / count)[number].largest[row % count].exponent();
        }
        return left_exponent(p.finish, std::int64_t{corner.row} + row, corner.batch);
      });
      ptx::mbarrier_arrive(base + Config::factors_full_offset);
      parity ^= 1;
      ++number;
    });
  }

  // Of each of the thread block's tiles, and one that does not exist.
  __device__ __forceinline__ DecodedRows* decoded_rows(int warp) const {
    return reinterpret_cast<DecodedRows*>(shared + Config::decoded_offset) +
           warp * DecodedRows::most_tiles;
  }

  // A warp that decodes rows: where those of all tiles lie and their largest scales, two tiles at a
  // time.
  __device__ __forceinline__ void find_decoded_rows() const {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    DecodedRows* rows = decoded_rows(warp);
    int number = 0;
    TileWork work = first();
    while (work.index >= 0) {
      DecodedRows(&two)[2] = *reinterpret_cast<DecodedRows(*)[2]>(rows + number);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const bool exists = work.index >= 0;
        const TileCorner corner = exists ? corner_of(work.index) : TileCorner{};
        if (threadIdx.x % 32 == 0) {
          *reinterpret_cast<int4*>(&two[i].row) =
              make_int4(corner.row + warp * DecodedRows::count, p.left_batched ? corner.batch : 0,
                        work.first, exists);
        }
        if (exists) work = after(work);
      }
      __syncwarp();
      find_largest_scales(two, p.left_scales);
      number += 2;
    }
    if (threadIdx.x % 32 == 0) *reinterpret_cast<int4*>(&rows[number].row) = make_int4(0, 0, 0, 0);
    __syncwarp();
  }

  __device__ __forceinline__ void multiply(int warpgroup) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    typename Config::Finisher finish = this->finisher(p.finish);
    SumSm90<Config> products(base, warpgroup, blocks);
    std::uint32_t parity = 0;
    [[maybe_unused]] DecodeSm90<Config> decoder(p.left_scales, decoded_rows(warp), base);
    [[maybe_unused]] typename DecodeSm90<Config>::Left codes;  // of a tile's first step
    if constexpr (Config::decodes) {
      find_decoded_rows();
      ptx::mbarrier_arrive(base + Config::rows_full_offset);
      if (!decoder.find_next()) return;
      decoder.ask();
      products.begin_decoded(decoder, codes, true);
    }
    for_each_tile([&](const TileWork& work) {
      typename SumSm90<Config>::Sums sums;
      if constexpr (Config::decodes) {
        const std::uint32_t nan_rows = products.multiply_decoded(sums, work.count, decoder, codes);
        decoder.spread_nan(sums, nan_rows);
      } else {
        products.multiply(sums, p.parts * work.count);
      }
      ptx::mbarrier_wait(base + Config::factors_full_offset, parity);
      parity ^= 1;
      // Where tiles have fewer rows, the next one begins where this warp's would.
      const bool has_rows = warp * 16 < p.tile_rows;
      if (has_rows &&
          (work.index < p.work.whole || Joiner{parts().of(work), warp, lane}.join(sums))) {
        finish.tile(sums, factors(), warp * 16);
      }
      ptx::mbarrier_arrive(base + Config::factors_empty_offset);
    });
    finish.wait();
  }

  __device__ __forceinline__ void fill_parts() const {
    if (p.work.divided() > 0) {
      parts().fill(p.work, p.part_sums, cluster(), rank, blocks, warps, Joiner::size);
    }
  }

  __device__ __forceinline__ void init() const {
    this->prefetch_maps(p.finish.stores_boxes);
    fill_parts();
    this->init_barriers();
  }

  __device__ __forceinline__ void run() const {
    if (threadIdx.x == 0) init();
    this->sync();
    // Until here nothing that another kernel may write has been read, but for settled spreads:
    // their gate was asked ahead of all else. Another one can only be asked now.
    if (!p.gate.is_settled && !wait_at_gate(p.gate)) return;
    take_roles();
  }

  __device__ __forceinline__ void take_roles() const {
    Block::take_roles([&] { return has_tiles(); }, [&] { load(); }, [&] { load_factors(); },
                      [&](int warp) { make_late_rows(warp % 2); },
                      [&](int warpgroup) { multiply(warpgroup); });
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    gemm_sm90(const __grid_constant__ CUtensorMap left, const __grid_constant__ CUtensorMap right,
              const __grid_constant__ CUtensorMap out,
              const __grid_constant__ GemmSm90Parameters parameters) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  if (parameters.gate.is_settled && !wait_at_gate(parameters.gate)) return;
  GemmSm90<Config>(parameters, left, right, out, shared).run();
#elif defined(__CUDA_ARCH__)
  __trap();  // compiled for the list of architectures, and never chosen elsewhere
#endif
}

}  // namespace mxkern::kernels
