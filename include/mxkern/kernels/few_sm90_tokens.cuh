// mxkern/kernels/few_sm90_tokens.cuh: tokens on their way to the tensor cores of gemm_few_sm90.
//
// A box is 64 columns of the tokens: a row of 128 bytes a token, with the 128-byte swizzle. The
// copy engine brings it as it lies in memory. But of the 16 columns of a step wgmma has the lane q
// of four multiply the pairs q and q + 4, while the weights' layout gives it eight adjacent
// columns. So a few warps put the pairs of each 32 columns in that order, in place: of the four
// chunks of 16 bytes the j-th gets the j-th pair of each. This is what ldmatrix does to four
// matrices whose rows are those chunks.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "mxkern/kernels/few_decode.cuh"
#include "mxkern/kernels/few_parameters.h"
#include "mxkern/kernels/few_ptx.cuh"
#include "mxkern/kernels/few_sm90_shape.h"
#include "mxkern/kernels/ptx/tma.cuh"

namespace mxkern::kernels::few {

// Where a stage's barriers are, and its memory.
struct RingsSm90 {
  std::uint32_t full, free;  // of tiles of weights
  std::uint32_t x_here, x_full,
      x_free;  // of 64 columns of tokens, two a stage: as they lie, in order
  std::uint32_t x, weights;

  __device__ RingsSm90(std::uint32_t base, const FewParameters& p, int half_bytes)
      : full(base),
        free(full + p.stages * 8),
        x_here(free + p.stages * 8),
        x_full(x_here + p.x_stages * 16),
        x_free(x_full + p.x_stages * 16),
        x(base + FewShape::barrier_bytes),
        weights(x + p.x_stages * 2 * half_bytes) {}
};

// The next place of a ring of boxes, and what frees it.
struct BoxesSm90 {
  const FewParameters& p;
  const RingsSm90& rings;
  int box = 0, stage = 0, parity = 1;

  __device__ __forceinline__ void wait_for_room() const {
    if (box >= 2 * p.x_stages) wait(rings.x_free + stage * 8, parity);
  }
  __device__ __forceinline__ void advance() {
    ++box;
    if (++stage == 2 * p.x_stages) stage = 0, parity ^= 1;
  }
};

// One lane: boxes as they lie in memory, from the box `first` of a row on, zeros beyond the tokens'
// rows and columns.
template <class K>
__device__ __forceinline__ void produce_tokens_sm90(const FewParameters& p, const RingsSm90& rings,
                                                    const CUtensorMap& map, int first, int boxes,
                                                    int token, int batch) {
  BoxesSm90 ring{p, rings};
#pragma unroll 1
  for (; ring.box < boxes; ring.advance()) {
    ring.wait_for_room();
    const std::uint32_t here = rings.x_here + ring.stage * 8;
    arrive_expecting(here, p.box_rows * 128);
    ptx::tma_load(rings.x + ring.stage * K::half_bytes, map, here, (first + ring.box) * 64, token,
                  batch, 0);
  }
}

__device__ __forceinline__ void copy_bulk(std::uint32_t to, const void* from, std::uint32_t bytes,
                                          std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// One lane: boxes that arrange_tokens has written.
template <class K>
__device__ __forceinline__ void produce_arranged_sm90(const FewParameters& p,
                                                      const RingsSm90& rings,
                                                      const std::uint8_t* from, int boxes) {
  BoxesSm90 ring{p, rings};
  const std::uint32_t bytes = p.box_rows * 128;
#pragma unroll 1
  for (; ring.box < boxes; ring.advance()) {
    ring.wait_for_room();
    const std::uint32_t full = rings.x_full + ring.stage * 8;
    arrive_expecting(full, bytes);
    copy_bulk(rings.x + ring.stage * K::half_bytes, from, bytes, full);
    from += K::half_bytes;
  }
}

__device__ __forceinline__ uint4 load_matrices(std::uint32_t address) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// One of K::arrangers warps, which take turns at boxes: their columns put in order. Four rows of
// 128 bytes are four matrices of eight chunks each: lanes that meet in a phase, of loads as of
// stores, are in eight different banks of 16 bytes.
template <class K>
__device__ __forceinline__ void arrange_tokens_sm90(const FewParameters& p, const RingsSm90& rings,
                                                    int count, int boxes, int warp, int lane) {
  constexpr int together = K::tokens < 64 ? 4 : 8;  // times four rows
  const int row = lane % 8 / 2, matrix = lane / 8;
  const std::uint32_t from = row * 128 + ((lane % 2 * 4 + matrix) ^ row) * 16;
  const std::uint32_t to = matrix * 128 + (lane % 8 ^ matrix) * 16;
  const int stages = 2 * p.x_stages;
  int stage = warp, parity = 0;
#pragma unroll 1
  for (int box = warp; box < boxes; box += K::arrangers) {
    while (stage >= stages) stage -= stages, parity ^= 1;
    wait(rings.x_here + stage * 8, parity);
    std::uint32_t at = rings.x + stage * K::half_bytes;
    const std::uint32_t end = at + count * 128;
#pragma unroll 1
    for (; at < end; at += together * 512) {
      uint4 v[together];
#pragma unroll
      for (int i = 0; i < together; ++i) v[i] = load_matrices(at + i * 512 + (from ^ i % 2 * 64));
      __syncwarp();
#pragma unroll
      for (int i = 0; i < together; ++i) write_shared(at + i * 512 + (to ^ i % 2 * 64), v[i]);
    }
    ptx::fence_shared_for_tma();
    __syncwarp();
    if (lane == 0) arrive(rings.x_full + stage * 8);
    stage += K::arrangers;
  }
}

}  // namespace mxkern::kernels::few
