// mxkern/kernels/decode/groups.cuh: few rows of each of many groups times the group's reordered
// weights.
//
// The products are those of gemm.cuh, by other thread blocks: there are as many as the device has
// room for, and they stay. A team of warps in one of them, a single warp or a few that divide K,
// takes one tile of rows of weights after another, of whichever group. Each warp has asked for
// weights and rows of the next tile while it finishes one.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "mxkern/kernels/decode/group_outputs.cuh"
#include "mxkern/kernels/decode/group_tiles.cuh"
#include "mxkern/kernels/decode/multiply.cuh"
#include "mxkern/kernels/decode/parameters.h"
#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/gemm/other_outputs.cuh"
#include "mxkern/kernels/ptx/elect.cuh"
#include "mxkern/kernels/ptx/tma.cuh"

namespace mxkern::kernels {
namespace few {

// A stage is shared memory for the rows and weights of a turn, and the barrier that says that they
// are there.
struct GroupStage {
  std::uint32_t x, tile, barrier;
};

// A warp's stages, which turns take one after the other.
template <class K>
struct GroupRing {
  static constexpr int stages = K::shape().stages_of_groups();

  GroupStage first;

  __device__ __forceinline__ GroupStage at(int i) const {
    return {first.x + i * K::shape().x_stage_bytes(), first.tile + i * K::tile_bytes,
            first.barrier + i * 8};
  }
};

// What a warp asks for, in turns of 128 columns of weights and of rows.
template <class K>
class GroupTurns {
 public:
  __device__ __forceinline__ GroupTurns(const DecodeParameters& p, const RowBoxes& boxes, int part,
                                        int half)
      : p_(p),
        boxes_(boxes),
        part_(part),
        tiles_behind_(half * p.gated.tiles_behind),
        turns_(same((p.tiles - part + (1 << p.log2_parts) - 1) >> p.log2_parts)),
        step_(same(K::tile_bytes << p.log2_parts)),
        column_step_(same(DecodeLayout::tile_columns << p.log2_parts)),
        policy_(evict_first_policy()) {}

  __device__ __forceinline__ int of_a_tile() const { return turns_; }
  __device__ __forceinline__ bool are_over() const { return left_ == 0; }

  // Starts to ask for a tile. The box for its rows is the smallest that holds them.
  __device__ __forceinline__ void begin(const GroupTile& tile) {
    const std::int64_t first =
        static_cast<std::int64_t>(tile.down + tiles_behind_) * p_.tiles + part_;
    from_ = same(p_.weights + (tile.group * p_.weight_batch_bytes + first * K::tile_bytes));
    left_ = turns_, column_ = same(part_ * DecodeLayout::tile_columns), row_ = same(tile.first);
    int box = 0;
#pragma unroll
    for (int i = 1; i < RowBoxes::sizes; ++i) box += tile.count <= K::tokens >> i ? 1 : 0;
    constexpr std::uint32_t row_bytes = DecodeLayout::tile_columns * 2;
    bytes_ = same(K::tile_bytes + (K::tokens >> box) * row_bytes);
    box_ = reinterpret_cast<const CUtensorMap*>(
        same(reinterpret_cast<const std::uint8_t*>(boxes_.of + box)));
  }

  // One lane calls these two, in this order: the first one also says how many bytes the stage gets.
  __device__ __forceinline__ void ask_for_weights(const GroupStage& stage) const {
    ptx::mbarrier_expect(stage.barrier, bytes_);
    copy_bulk(stage.tile, from_, K::tile_bytes, stage.barrier, policy_);
  }
  __device__ __forceinline__ void ask_for_rows(const GroupStage& stage) const {
    const Tokens<K> rows{*box_, row_, 0};
    rows.load(stage.x, stage.barrier, column_);
  }
  __device__ __forceinline__ void advance() { from_ += step_, column_ += column_step_, --left_; }

 private:
  const DecodeParameters& p_;
  const RowBoxes& boxes_;
  int part_, tiles_behind_, turns_, step_, column_step_;
  std::uint64_t policy_;
  const std::uint8_t* from_ = nullptr;
  const CUtensorMap* box_ = nullptr;
  std::uint32_t bytes_ = 0;
  int left_ = 0, column_ = 0, row_ = 0;
};

// All thread blocks together set the outputs of rows that belong to no group, or of all rows where
// groups make no sense.
__device__ __forceinline__ void store_rows_without_group(const DecodeParameters& p,
                                                         bool are_ordered) {
  const GroupEnds& all = p.groups;
  const std::int64_t columns = p.gated.are_there ? p.layout.rows / 2 : p.layout.rows;
  const int first = are_ordered && all.groups > 0 ? all.ends[all.groups - 1] : 0;
  for (int row = first + static_cast<int>(blockIdx.x); row < all.rows;
       row += static_cast<int>(gridDim.x)) {
    const OtherOutputs outputs = {p.out, p.out_dtype, p.out_row_stride, row, 1, 0, columns};
    are_ordered ? outputs.scale(p.beta) : outputs.poison();
  }
}

}  // namespace few

// The grid has as many thread blocks as the device has room for, or one for each tile, if these are
// fewer.
template <class K>
__global__ void __launch_bounds__(K::threads, K::shape().tenants())
    gemm_decode_groups_kernel(const __grid_constant__ DecodeParameters p,
                              const __grid_constant__ RowBoxes boxes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  static_assert(K::warp_tiles == 1 && !K::shares);
  constexpr DecodeShape shape = K::shape();
  constexpr int stages = few::GroupRing<K>::stages;
  extern __shared__ __align__(1024) std::uint8_t shared[];
  const std::uint32_t base = ptx::shared_address(shared);
  // The same in all lanes, which the compiler shall know.
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int log2_warps = few::Team<K>::log2_warps(p);
  const int part = warp & ((1 << p.log2_parts) - 1), number = warp >> log2_warps;
  const int half = warp >> p.log2_parts & ((1 << log2_warps >> p.log2_parts) - 1);
  const int teams = p.row_tiles, active = teams << log2_warps;
  const bool multiplies = number < teams;

  // Barriers, then rows, weights, and room for scales and sums, each for warp after warp.
  const std::uint32_t memory = base + DecodeShape::barrier_bytes;
  const std::uint32_t tiles = memory + active * stages * shape.x_stage_bytes();
  const std::uint32_t rooms = tiles + active * stages * K::tile_bytes;
  const few::GroupRing<K> ring{{few::same(memory + warp * stages * shape.x_stage_bytes()),
                                few::same(tiles + warp * stages * K::tile_bytes),
                                few::same(base + warp * stages * 8)}};
  if (multiplies && ptx::elect()) {
#pragma unroll
    for (int i = 0; i < stages; ++i) ptx::mbarrier_init(ring.at(i).barrier, 1);
    ptx::fence_mbarrier_init();
  }
  __syncwarp();
  // Weights do not depend on what the kernel before this one computes, but the ends may.
  if (!p.groups_are_complete) wait_for_kernels_ahead();
  const int tiles_down = p.gated.tiles_behind > 0 ? p.gated.tiles_behind : p.tiles_down;
  // The first tiles go to the first team of each thread block, the next ones to the second teams:
  // so all thread blocks have work, where there is not a tile for each team.
  const int blocks = static_cast<int>(gridDim.x);
  few::GroupTiles<K::tokens> walk(p.groups, tiles_down,
                                  number * blocks + static_cast<int>(blockIdx.x), teams * blocks);
  const bool are_ordered = __syncthreads_or(few::finds_wrong_end(p.groups)) == 0;
  few::GroupTile tile, after;
  bool has_tile = are_ordered && multiplies && walk.next(tile);
  few::GroupTurns<K> turns(p, boxes, part, half);
  if (has_tile) turns.begin(tile);
  const bool asks_early = has_tile && !turns.are_over();
  if (asks_early && ptx::elect()) turns.ask_for_weights(ring.first);
  __syncwarp();
  wait_for_kernels_ahead();
  let_dependents_start();
  int free_stages = stages, next_free = 0;
  const auto advance = [&] {
    turns.advance(), --free_stages;
    if (++next_free == stages) next_free = 0;
  };
  if (asks_early) {
    if (ptx::elect()) turns.ask_for_rows(ring.first);
    __syncwarp();
    advance();
  }
  // Asks for the next turn, at most of the tile behind the one that is multiplied. False: not now.
  bool knows_after = false, has_after = false;
  const auto ask = [&] {
    if (turns.are_over()) {
      if (knows_after) return false;
      knows_after = true, has_after = walk.next(after);
      if (!has_after) return false;
      turns.begin(after);
      if (turns.are_over()) return false;
    }
    const few::GroupStage to = ring.at(next_free);
    if (ptx::elect()) turns.ask_for_weights(to), turns.ask_for_rows(to);
    __syncwarp();
    advance();
    return true;
  };
  const float tensor_scale = p.right_tensor_scale != nullptr ? *p.right_tensor_scale : 1.0f;
  constexpr std::uint32_t room_bytes = shape.room_of_warp();
  few::Team<K> team{p, number, half, part, lane, rooms + (warp - part) * room_bytes, room_bytes};
  const std::uint32_t own_room = rooms + warp * room_bytes;
  int next = 0, parity = 0;  // the stage of the next turn, and of its barrier's phase
#pragma unroll 1
  while (has_tile) {
    team.prepare(tile);
    few::WarpSums<K> sums = {};
#pragma unroll 1
    for (int left = turns.of_a_tile();;) {
      // The stage that was multiplied last is free; at first, and behind tiles of few turns, more
      // are.
      while (free_stages > 0 && ask()) {
      }
      if (left == 0) break;
      const few::GroupStage stage = ring.at(next);
      ptx::mbarrier_wait(stage.barrier, parity);
      if (K::tokens == 8 || tile.count <= 8) {
        few::multiply_turn<K, 1>(sums, stage.tile, stage.x, own_room, lane);
      } else {
        few::multiply_turn<K>(sums, stage.tile, stage.x, own_room, lane);
      }
      __syncwarp();
      if (++next == stages) next = 0, parity ^= 1;
      ++free_stages, --left;
    }
    team.finish(tile, sums[0], tensor_scale);
    tile = after, has_tile = has_after, knows_after = false;
  }
  few::store_rows_without_group(p, are_ordered);
#elif defined(__CUDA_ARCH__)
  __trap();  // compiled for the list of architectures, and never chosen elsewhere
#endif
}

}  // namespace mxkern::kernels
