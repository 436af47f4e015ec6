// mxkern/kernels/gemm/hopper/grouped_rows.cuh: products of row-scaled matrices on Hopper's tensor
// cores where each group of rows has a right operand of its own.
#pragma once

#include <cstdint>

#include "mxkern/core/dtype.h"
#include "mxkern/core/math.h"
#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/gemm/other_outputs.cuh"
#include "mxkern/kernels/gemm/hopper/thread_block.cuh"
#include "mxkern/kernels/gemm/hopper/producer.cuh"
#include "mxkern/kernels/gemm/hopper/mainloop.cuh"
#include "mxkern/kernels/gemm/group_walk.cuh"

namespace mxkern::kernels {

// The blocks of a cluster lie side by side, however wide they are: one below the other, more of
// their rows would belong to no group. A box of the output may end where a group does.
template <class LeftElement, class RightElement, int Columns>
struct GroupedSm90Config : GemmSm90Config<LeftElement, RightElement, Columns> {
  using Base = GemmSm90Config<LeftElement, RightElement, Columns>;
  static constexpr bool shares_left = true;
  static constexpr int left_boxes = Base::cluster;
  static constexpr int left_box = Base::rows / left_boxes;
  static constexpr int right_box = Columns;
  using Finisher = Finish<Base::rows, Columns, Base::Finisher::slots, Base::rounded, false, true>;
};

struct GroupedSm90Parameters {
  GroupTiles tiles;  // of clusters
  int steps, parts;  // of K, and of the left operand
  bool right_batched;
  bool skips_rows;  // whether warpgroups without rows multiply nothing
  FinishParameters finish;
  std::int64_t bias_step;      // from a group's biases to the next one's
  const float* group_factors;  // null: 1
};

// Clusters take tiles in turns until none is left: how many there are only the device knows.
template <class Config>
struct GroupedSm90 : BlockSm90<Config> {
  using Block = BlockSm90<Config>;
  using Block::base, Block::blocks, Block::cluster, Block::factors, Block::rank, Block::shared,
      Block::warps;

  const GroupedSm90Parameters& p;

  __device__ __forceinline__ GroupedSm90(const GroupedSm90Parameters& parameters,
                                         const CUtensorMap& left, const CUtensorMap& right,
                                         const CUtensorMap& out, unsigned char* memory)
      : Block(left, right, out, memory), p(parameters) {}

  __device__ __forceinline__ void run() const {
    if (threadIdx.x == 0) {
      this->prefetch_maps(p.finish.stores_boxes);
      this->init_barriers();
    }
    this->sync();
    // Ends, too, may be what the kernel ahead writes.
    wait_for_kernels_ahead();
    let_dependents_start();
    const int tiles = GroupWalk::count(p.tiles);
    Block::take_roles([] { return true; }, [&] { load(tiles); }, [&] { load_factors(tiles); },
                      [&](int warp) { fill_rest(warp - 2, tiles >= 0); },
                      [&](int warpgroup) { multiply(warpgroup, tiles); });
  }

 private:
  template <class Compute>
  __device__ __forceinline__ void for_each_tile(int tiles, Compute&& compute) const {
    const int clusters = static_cast<int>(gridDim.x) / blocks;
    for (int index = cluster(); index < tiles; index += clusters) compute(index);
  }

  __device__ __forceinline__ TileCorner corner_of(const GroupTile& tile) const {
    return {tile.first, (tile.right * blocks + rank) * Config::columns, tile.group};
  }

  // The rows of the tile whose first stage is full.
  __device__ __forceinline__ int& tile_rows() const {
    return *reinterpret_cast<int*>(shared + Config::parts_offset);
  }

  __device__ __forceinline__ void load(int tiles) const {
    LoadSm90<Config> load{
        this->left_map, this->right_map, base, blocks, rank, p.tiles.height / Config::left_boxes,
        false,          p.right_batched, {}};
    GroupWalk walk(p.tiles);
    for_each_tile(tiles, [&](int index) {
      const GroupTile tile = walk.at(index);
      const TileCorner corner = corner_of(tile);
      ptx::mbarrier_wait(base + Config::empty_offset, load.phases.of(0) ^ 1);
      // Of a thread block beyond the last column there is nothing to multiply.
      if (threadIdx.x % 32 == 0) tile_rows() = corner.column < p.finish.columns ? tile.count : 0;
      __syncwarp();
      load.tile(corner, p.parts, {index, 0, p.steps}, [](int, int end) { return end; });
    });
  }

  __device__ __forceinline__ void load_factors(int tiles) const {
    PowerRange range = no_powers;  // elements without exponents may be of any size
    if (p.finish.left_exponents && p.finish.right_exponents) {
      constexpr bool is_folded = Config::rounded == RoundedFirst::all;
      range = is_folded ? PowerRange(folded_powers) : PowerRange(expanded_powers);
    }
    GroupWalk walk(p.tiles);
    std::uint32_t parity = 1;
    for_each_tile(tiles, [&](int index) {
      const GroupTile tile = walk.at(index);
      const TileCorner corner = corner_of(tile);
      const double factor = p.group_factors ? double{p.group_factors[tile.group]} : 1.0;
      const CommonFactor common = common_factor(p.finish, factor);
      FinishParameters finish = p.finish;
      if (finish.bias) {
        finish.bias = static_cast<const char*>(finish.bias) +
                      tile.group * p.bias_step * size_of(finish.bias_dtype);
      }
      ptx::mbarrier_wait(base + Config::factors_empty_offset, parity);
      factors().fetch(finish, common, corner, range, [&](int row) {
        return left_exponent(p.finish, std::int64_t{corner.row} + row, corner.batch);
      });
      ptx::mbarrier_arrive(base + Config::factors_full_offset);
      parity ^= 1;
    });
  }

  // Two warps: rows behind the last end, or all where ends make no sense.
  __device__ __forceinline__ void fill_rest(int warp, bool are_ordered) const {
    const GroupEnds& groups = p.tiles.groups;
    const std::int64_t begin = are_ordered ? groups.ends[groups.groups - 1] : 0;
    const int thread = warp * 32 + static_cast<int>(threadIdx.x) % 32;
    OtherOutputs row = {p.finish.out,    p.finish.dtype, p.finish.row_stride, 0, 1, 0,
                        p.finish.columns};
    for (row.first_row = begin + blockIdx.x; row.first_row < groups.rows;
         row.first_row += gridDim.x) {
      are_ordered ? row.scale(p.finish.beta, thread, 64) : row.poison(thread, 64);
    }
  }

  __device__ __forceinline__ void multiply(int warpgroup, int tiles) const {
    const int warp = threadIdx.x / 32;
    typename Config::Finisher finish = this->finisher(p.finish);
    SumSm90<Config> products(base, warpgroup, blocks);
    std::uint32_t parity = 0;
    for_each_tile(tiles, [&](int) {
      typename SumSm90<Config>::Sums sums;
      ptx::mbarrier_wait(base + Config::full_offset, products.phases.of(0));
      const int rows = tile_rows();
      // The tensor cores are the other warpgroup's where this one has no rows.
      if ((p.skips_rows ? warpgroup * 64 : 0) < rows) {
        products.multiply(sums, p.parts * p.steps);
      } else {
        products.skip(p.parts * p.steps);
      }
      ptx::mbarrier_wait(base + Config::factors_full_offset, parity);
      parity ^= 1;
      if (warp * 16 < rows) {
        finish.output.end = factors().corner.row + rows;
        finish.tile(sums, factors(), warp * 16);
      }
      ptx::mbarrier_arrive(base + Config::factors_empty_offset);
    });
    finish.wait();
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    gemm_sm90_grouped(const __grid_constant__ CUtensorMap left,
                      const __grid_constant__ CUtensorMap right,
                      const __grid_constant__ CUtensorMap out,
                      const __grid_constant__ GroupedSm90Parameters parameters) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  GroupedSm90<Config>(parameters, left, right, out, shared).run();
#elif defined(__CUDA_ARCH__)
  __trap();  // compiled for the list of architectures, and never chosen elsewhere
#endif
}

}  // namespace mxkern::kernels
