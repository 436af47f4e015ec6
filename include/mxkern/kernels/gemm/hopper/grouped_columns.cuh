// mxkern/kernels/gemm/hopper/grouped_columns.cuh: products of row-scaled matrices on Hopper's
// tensor cores where each group of columns has an output of its own.
#pragma once

#include <cstdint>

#include "mxkern/core/dtype.h"
#include "mxkern/kernels/gemm/column_groups.cuh"
#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/gemm/other_outputs.cuh"
#include "mxkern/kernels/gemm/hopper/thread_block.cuh"
#include "mxkern/kernels/gemm/hopper/config.cuh"
#include "mxkern/kernels/gemm/hopper/producer.cuh"
#include "mxkern/kernels/gemm/hopper/tile_order.cuh"
#include "mxkern/kernels/gemm/hopper/mainloop.cuh"
#include "mxkern/kernels/ptx/barrier.cuh"
#include "mxkern/kernels/ptx/mbarrier.cuh"
#include "mxkern/kernels/ptx/tma.cuh"

namespace mxkern::kernels {

template <class LeftElement, class RightElement, int Columns>
struct ColumnsSm90Config : GemmSm90Config<LeftElement, RightElement, Columns> {
  static constexpr bool cuts_steps = true;
};

struct ColumnsSm90Parameters {
  TileOrder order;  // of the outputs' tiles; a batch is a group
  ColumnEnds groups;
  int tile_rows;  // a multiple of 16, at most Config::rows
  FinishParameters finish;
  std::int64_t bias_step;      // from a group's biases to the next one's
  const float* group_factors;  // null: 1
};

// Clusters take tiles in turns. How many steps a tile has only the device knows. Of the last one a
// part may be the next group's, in either operand: a warp writes zeros there before it says that
// the stage is full.
template <class Config>
struct ColumnsSm90 : BlockSm90<Config> {
  using Block = BlockSm90<Config>;
  using Block::base, Block::blocks, Block::cluster, Block::factors, Block::rank, Block::shared;

  const ColumnsSm90Parameters& p;

  __device__ __forceinline__ ColumnsSm90(const ColumnsSm90Parameters& parameters,
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
    const bool has_order = are_ordered(p.groups);
    const int tiles = has_order ? p.order.count() : 0;
    Block::take_roles([] { return true; }, [&] { load(tiles); }, [&] { load_factors(tiles); },
                      [&](int warp) {
                        if (!has_order) return fill_with_nan(warp - 2);
                        cut_steps(warp - 2, tiles);
                      },
                      [&](int warpgroup) { multiply(warpgroup, tiles); });
  }

 private:
  template <class Compute>
  __device__ __forceinline__ void for_each_tile(int tiles, Compute&& compute) const {
    const int clusters = static_cast<int>(gridDim.x) / blocks;
    for (int index = cluster(); index < tiles; index += clusters) compute(p.order.at(index));
  }

  // The steps of a tile, and the columns that the last one has; 0: all, or those up to K, behind
  // which there are zeros.
  struct Steps {
    int first_k, count, rest;
  };
  __device__ __forceinline__ Steps steps_of(const TileOrder::Tile& tile) const {
    const ColumnRange range = columns_of(p.groups, tile.batch);
    const int count = (range.count() + Config::k - 1) / Config::k;
    const int rest = range.end == p.groups.columns ? 0 : range.count() % Config::k;
    return {range.begin, count, rest};
  }

  __device__ __forceinline__ TileCorner corner_of(const TileOrder::Tile& tile) const {
    const int down = Config::shares_left ? tile.down : tile.down * blocks + rank;
    const int right = Config::shares_left ? tile.right * blocks + rank : tile.right;
    return {down * p.tile_rows, right * Config::columns, tile.batch};
  }

  __device__ __forceinline__ void load(int tiles) const {
    LoadSm90<Config> load{
        this->left_map, this->right_map, base, blocks, rank, p.tile_rows / Config::left_boxes,
        false,          false,           {}};
    for_each_tile(tiles, [&](const TileOrder::Tile& tile) {
      const Steps steps = steps_of(tile);
      load.first_k = steps.first_k;
      load.cut_step = steps.rest > 0 ? steps.count - 1 : -1;
      load.tile(corner_of(tile), 1, {0, 0, steps.count}, [](int, int end) { return end; });
    });
  }

  // Two warps, each half of the rows.
  __device__ __forceinline__ void cut_steps(int warp, int tiles) const {
    constexpr int element_bytes = 128 / Config::k, warps = 2;
    constexpr int pieces = 8, piece_bytes = 16;  // of a row
    constexpr int own_rows = Config::stage_bytes / 128 / warps;
    // Eight lanes have the pieces of a row, as they lie in it, and every eighth row is swizzled
    // alike.
    const int lane = static_cast<int>(threadIdx.x) % 32, piece = lane % pieces;
    const int first_row = warp * own_rows + lane / pieces;
    unsigned char* const own = shared + first_row * 128 + piece * piece_bytes;
    RingPhases phases;
    for_each_tile(tiles, [&](const TileOrder::Tile& tile) {
      const Steps steps = steps_of(tile);
      if (steps.rest == 0) return;
      const int stage = (steps.count - 1) % Config::stages;
      ptx::mbarrier_wait(base + Config::cut_offset + stage * 8, phases.of(stage));
      phases.advance(stage);
      const int end = steps.rest * element_bytes / piece_bytes;
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // four rows of eight
        if ((piece ^ (first_row + half * 4) % 8) < end) continue;
        unsigned char* from = own + stage * Config::stage_bytes + half * 4 * 128;
#pragma unroll 8
        for (int row = 0; row < own_rows; row += 8) {
          *reinterpret_cast<uint4*>(from + row * 128) = uint4{};
        }
      }
      ptx::fence_shared_for_tma();
      __syncwarp();
      ptx::barrier_sync<1, warps * 32>();
      if (threadIdx.x % 128 == 64) ptx::mbarrier_arrive(base + Config::full_offset + stage * 8);
    });
  }

  __device__ __forceinline__ void load_factors(int tiles) const {
    PowerRange range = no_powers;  // elements without exponents may be of any size
    if (p.finish.left_exponents && p.finish.right_exponents) {
      constexpr bool is_folded = Config::rounded == RoundedFirst::all;
      range = is_folded ? PowerRange(folded_powers) : PowerRange(expanded_powers);
    }
    std::uint32_t parity = 1;
    for_each_tile(tiles, [&](const TileOrder::Tile& tile) {
      const TileCorner corner = corner_of(tile);
      const double factor = p.group_factors ? double{p.group_factors[corner.batch]} : 1.0;
      const CommonFactor common = common_factor(p.finish, factor);
      FinishParameters finish = p.finish;
      if (finish.bias) {
        finish.bias = static_cast<const char*>(finish.bias) +
                      corner.batch * p.bias_step * size_of(finish.bias_dtype);
      }
      factors().fetch_ahead(
          finish, common, corner, range,
          [&](int row) { return left_exponent(p.finish, std::int64_t{corner.row} + row, 0); },
          [&] { ptx::mbarrier_wait(base + Config::factors_empty_offset, parity); });
      ptx::mbarrier_arrive(base + Config::factors_full_offset);
      parity ^= 1;
    });
  }

  // Two warps.
  __device__ __forceinline__ void fill_with_nan(int warp) const {
    const int thread = warp * 32 + static_cast<int>(threadIdx.x) % 32;
    const std::int64_t rows = p.finish.rows * p.groups.groups;
    for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
      const std::int64_t group = row / p.finish.rows;
      void* out =
          static_cast<char*>(p.finish.out) +
          group * p.finish.batch_stride * static_cast<std::int64_t>(size_of(p.finish.dtype));
      OtherOutputs{out, p.finish.dtype,  p.finish.row_stride, row - group * p.finish.rows, 1,
                   0,   p.finish.columns}
          .poison(thread, 64);
    }
  }

  __device__ __forceinline__ void multiply(int warpgroup, int tiles) const {
    const int warp = threadIdx.x / 32;
    typename Config::Finisher finish = this->finisher(p.finish);
    SumSm90<Config> products(base, warpgroup, blocks);
    std::uint32_t parity = 0;
    for_each_tile(tiles, [&](const TileOrder::Tile& tile) {
      if (warp * 16 < p.tile_rows) finish.begin(corner_of(tile), warp * 16);
      typename SumSm90<Config>::Sums sums;
      products.multiply(sums, steps_of(tile).count);
      ptx::mbarrier_wait(base + Config::factors_full_offset, parity);
      parity ^= 1;
      if (warp * 16 < p.tile_rows) finish.tile(sums, factors(), warp * 16);
      ptx::mbarrier_arrive(base + Config::factors_empty_offset);
    });
    finish.wait();
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    gemm_sm90_columns(const __grid_constant__ CUtensorMap left,
                      const __grid_constant__ CUtensorMap right,
                      const __grid_constant__ CUtensorMap out,
                      const __grid_constant__ ColumnsSm90Parameters parameters) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  ColumnsSm90<Config>(parameters, left, right, out, shared).run();
#elif defined(__CUDA_ARCH__)
  __trap();  // compiled for the list of architectures, and never chosen elsewhere
#endif
}

}  // namespace mxkern::kernels
