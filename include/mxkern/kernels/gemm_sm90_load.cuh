// mxkern/kernels/gemm_sm90_load.cuh: what the loading warpgroup of a thread block does.
#pragma once

#include <cstdint>

#include "mxkern/kernels/gemm_sm90_config.cuh"
#include "mxkern/kernels/gemm_sm90_order.cuh"
#include "mxkern/kernels/gemm_sm90_work.h"
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
  bool left_batched, right_batched;
  RingPhases phases;

  // One thread: steps of a tile, of each part of the left operand, as stages become free.
  __device__ __forceinline__ void tile(const TileCorner& corner, int parts, const TileWork& work) {
    int stage = 0;
    for (int part = 0; part < parts; ++part) {
      for (int step = work.first; step < work.first + work.count; ++step) {
        const std::uint32_t full = base + Config::full_offset + stage * 8;
        ptx::mbarrier_wait(base + Config::empty_offset + stage * 8, phases.of(stage) ^ 1);
        phases.advance(stage);
        ptx::mbarrier_expect(full, Config::stage_bytes);
        const std::uint32_t to = base + stage * Config::stage_bytes;
        rows<Config::rows, Config::left_box, Config::left_row_bytes, Config::shares_left>(
            to, left_map, full, step * Config::k, corner.row, part,
            left_batched ? corner.batch : 0);
        rows<Config::columns, Config::right_box, 128, !Config::shares_left>(
            to + Config::left_bytes, right_map, full, step * Config::k, corner.column, 0,
            right_batched ? corner.batch : 0);
        stage = stage + 1 == Config::stages ? 0 : stage + 1;
      }
    }
  }

 private:
  template <int Rows, int Box, int RowBytes, bool Shared>
  __device__ __forceinline__ void rows(std::uint32_t to, const CUtensorMap& map,
                                       std::uint32_t barrier, int k, int row, int part,
                                       int batch) const {
    constexpr std::uint16_t both = 3;
#pragma unroll
    for (int i = 0; i < Rows / Box; ++i) {
      if (Shared && blocks > 1 && i != rank) continue;
      const std::uint32_t box = to + i * Box * RowBytes;
      if (Shared && blocks > 1) {
        ptx::tma_load_multicast(box, map, barrier, both, k, row + i * Box, part, batch);
      } else {
        ptx::tma_load(box, map, barrier, k, row + i * Box, part, batch);
      }
    }
  }
};

}  // namespace mxkern::kernels
