// mxkern/kernels/decode/hopper/pipeline.cuh: weights and tokens on their way to the tensor cores of
// gemm_decode_sm90.
//
// A box is 64 columns of the tokens, or 128 of FP8: a row of 128 bytes a token, with the 128-byte
// swizzle. The copy engine brings it as it lies in memory, which is how wgmma reads it, since the
// weights' layout has its columns in the order of the instruction.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "mxkern/kernels/decode/upcast.cuh"
#include "mxkern/kernels/decode/parameters.h"
#include "mxkern/kernels/decode/instructions.cuh"
#include "mxkern/kernels/decode/hopper/shared_memory.h"
#include "mxkern/kernels/ptx/mbarrier.cuh"
#include "mxkern/kernels/ptx/tma.cuh"

namespace mxkern::kernels::few {

// Where a stage's barriers are, and its memory. Of two barriers that lie next to one another the
// first one says that the stage is full, the second one that it is free.
struct RingsSm90 {
  static constexpr std::uint32_t pair_bytes = 16, free = 8;

  std::uint32_t barriers;    // of tiles of weights
  std::uint32_t x_barriers;  // of boxes of tokens, two pairs a stage
  std::uint32_t unused;      // behind them: one that nobody waits for
  std::uint32_t x, weights;

  __device__ RingsSm90(std::uint32_t base, const DecodeParameters& p, int half_bytes)
      : barriers(base),
        x_barriers(barriers + p.stages * pair_bytes),
        unused(x_barriers + p.x_stages * 2 * pair_bytes),
        x(base + DecodeShape::barrier_bytes),
        weights(x + p.x_stages * 2 * half_bytes) {}
};

// One lane: boxes from the box `first` of a row on, zeros beyond the tokens' rows and columns.
template <class K>
__device__ __forceinline__ void produce_tokens_sm90(const DecodeParameters& p,
                                                    const RingsSm90& rings, const CUtensorMap& map,
                                                    int first, int boxes, int token, int batch) {
  const int stages = 2 * p.x_stages;
  int stage = 0, parity = 1;
#pragma unroll 1
  for (int box = 0; box < boxes; ++box) {
    const std::uint32_t full = rings.x_barriers + stage * RingsSm90::pair_bytes;
    if (box >= stages) ptx::mbarrier_wait(full + RingsSm90::free, parity);
    ptx::mbarrier_expect(full, p.group_tokens * 128);
    ptx::tma_load(rings.x + stage * K::half_bytes, map, full, (first + box) * K::box_columns, token,
                  batch, 0);
    if (++stage == stages) stage = 0, parity ^= 1;
  }
}

// A place in a ring, and the parity of the phase that ends when it is full.
struct Turn {
  int stage, parity = 0;

  __device__ __forceinline__ void advance(int by, int stages) {
    stage += by;
    if (stage >= stages) stage -= stages, parity ^= 1;
  }
};

// One lane: of each of the thread block's rows of tiles one for each part, all at one barrier.
template <class K>
struct WeightsSm90 {
  const DecodeParameters& p;
  const RingsSm90& rings;
  const std::uint8_t* from;
  int rows, tiles;
  Turn turn{0};

  // Turns [begin, end).
  __device__ __forceinline__ void produce(int begin, int end) {
    const std::uint64_t policy = evict_first_policy();
    const std::int64_t row_bytes = static_cast<std::int64_t>(p.tiles) * K::tile_bytes;
    const int room = K::tile_bytes << p.log2_parts;
#pragma unroll 1
    for (int i = begin; i < end; ++i) {
      const std::uint32_t full = rings.barriers + turn.stage * RingsSm90::pair_bytes;
      if (i >= p.stages) ptx::mbarrier_wait(full + RingsSm90::free, turn.parity ^ 1);
      const int left = tiles - (i << p.log2_parts);
      const std::uint32_t bytes = lower_of(left, 1 << p.log2_parts) * K::tile_bytes;
      ptx::mbarrier_expect(full, rows * bytes);
      std::uint32_t to = rings.weights + turn.stage * p.row_tiles * room;
      const std::uint8_t* row_from = from + static_cast<std::int64_t>(i) * room;
#pragma unroll 1
      for (int row = 0; row < rows; ++row) {
        copy_bulk(to, row_from, bytes, full, policy);
        to += room, row_from += row_bytes;
      }
      turn.advance(1, p.stages);
    }
  }
};

// The start, by one warp: barriers, `arrivals` of warps at those of tokens.
template <class K>
__device__ __forceinline__ void init_rings(const DecodeParameters& p, const RingsSm90& rings,
                                           int arrivals, int lane) {
#pragma unroll 1
  for (int i = lane; i < p.stages; i += 32) {
    ptx::mbarrier_init(rings.barriers + i * RingsSm90::pair_bytes, 1);
    ptx::mbarrier_init(rings.barriers + i * RingsSm90::pair_bytes + RingsSm90::free, K::warps);
  }
#pragma unroll 1
  for (int i = lane; i < 2 * p.x_stages; i += 32) {
    ptx::mbarrier_init(rings.x_barriers + i * RingsSm90::pair_bytes, 1);
    ptx::mbarrier_init(rings.x_barriers + i * RingsSm90::pair_bytes + RingsSm90::free, arrivals);
  }
  if (lane == 0) {
    ptx::mbarrier_init(rings.unused, arrivals);
    ptx::mbarrier_init(rings.barriers - 8 + DecodeShape::barrier_bytes, 1);
  }
  ptx::fence_mbarrier_init();
  __syncwarp();
}

}  // namespace mxkern::kernels::few
