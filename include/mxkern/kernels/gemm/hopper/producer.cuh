// mxkern/kernels/gemm/hopper/producer.cuh: what the loading warpgroup of a thread block does.
#pragma once

#include <cstdint>

#include "mxkern/kernels/gemm/hopper/config.cuh"
#include "mxkern/kernels/gemm/hopper/tile_order.cuh"
#include "mxkern/kernels/gemm/hopper/tile_scheduler.h"
#include "mxkern/kernels/ptx/elect.cuh"
#include "mxkern/kernels/ptx/mbarrier.cuh"
#include "mxkern/kernels/ptx/tma.cuh"

namespace mxkern::kernels {

// Loads steps of both operands into the stages. In a cluster each block loads its share of the rows
// that all need, to all.
template <class Config>
struct LoadSm90 {
  const CUtensorMap &left_map, &right_map;
  std::uint32_t base;  // the address of shared memory
  int blocks, rank;    // of the cluster
  int left_box;        // rows of a box of the left operand
  bool left_batched, right_batched;
  RingPhases phases;
  int stage = 0;
  int first_k = 0;    // where the first step begins
  int cut_step = -1;  // who cuts this one says that its stage is full, where Config::cuts_steps

  // One warp: steps of a tile, of each part of the left operand, as stages become free. One lane
  // is elected to load: of any other one the compiler does not know that it is alone, and puts a
  // loop around each load.
  // wait(step, end) returns when the elements of some steps from that one on are ready, and where
  // those end.
  template <class Wait>
  __device__ __forceinline__ void tile(const TileCorner& corner, int parts, const TileWork& work,
                                       Wait&& wait) {
    stage = 0;
    for (int part = 0; part < parts; ++part) {
      const int end = work.first + work.count;
      for (int step = work.first; step < end;) {
        const int ready = wait(step, end);
        for (; step < ready; ++step) load(corner, part, step);
      }
    }
  }

 private:
  __device__ __forceinline__ void load(const TileCorner& corner, int part, int step) {
    const int step_bytes =
        Config::left_boxes * left_box * Config::left_row_bytes + Config::right_bytes;
    const bool is_cut = Config::cuts_steps && step == cut_step;
    const std::uint32_t full =
        base + (is_cut ? Config::cut_offset : Config::full_offset) + stage * 8;
    ptx::mbarrier_wait(base + Config::empty_offset + stage * 8, phases.of(stage) ^ 1);
    phases.advance(stage);
    if (ptx::elect()) {
      ptx::mbarrier_expect(full, step_bytes);
      const std::uint32_t to = base + stage * Config::stage_bytes;
      boxes<Config::left_boxes, Config::left_row_bytes, Config::shares_left>(
          to, left_map, full, left_box, first_k + step * Config::k, corner.row, part,
          left_batched ? corner.batch : 0);
      boxes<Config::columns / Config::right_box, 128, !Config::shares_left>(
          to + Config::left_bytes, right_map, full, Config::right_box, first_k + step * Config::k,
          corner.column, 0, right_batched ? corner.batch : 0);
    }
    stage = stage + 1 == Config::stages ? 0 : stage + 1;
  }

  // `rows` rows each.
  template <int Boxes, int RowBytes, bool Shared>
  __device__ __forceinline__ void boxes(std::uint32_t to, const CUtensorMap& map,
                                        std::uint32_t barrier, int rows, int k, int row, int part,
                                        int batch) const {
    constexpr std::uint16_t both = 3;
#pragma unroll
    for (int i = 0; i < Boxes; ++i) {
      if (Shared && blocks > 1 && i != rank) continue;
      const std::uint32_t box = to + i * rows * RowBytes;
      if (Shared && blocks > 1) {
        ptx::tma_load_multicast(box, map, barrier, both, k, row + i * rows, part, batch);
      } else {
        ptx::tma_load(box, map, barrier, k, row + i * rows, part, batch);
      }
    }
  }
};

}  // namespace mxkern::kernels
