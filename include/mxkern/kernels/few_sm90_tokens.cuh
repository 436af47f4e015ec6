// mxkern/kernels/few_sm90_tokens.cuh: tokens on their way to the tensor cores of gemm_few_sm90.
//
// A box is 64 columns of the tokens: a row of 128 bytes a token, with the 128-byte swizzle. The
// copy engine brings it as it lies in memory, which is how wgmma reads it, since the weights'
// layout has its columns in the order of the instruction.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "mxkern/kernels/few_decode.cuh"
#include "mxkern/kernels/few_parameters.h"
#include "mxkern/kernels/few_ptx.cuh"
#include "mxkern/kernels/few_sm90_shape.h"
#include "mxkern/kernels/ptx/mbarrier.cuh"
#include "mxkern/kernels/ptx/tma.cuh"

namespace mxkern::kernels::few {

// Where a stage's barriers are, and its memory.
struct RingsSm90 {
  std::uint32_t full, free;      // of tiles of weights
  std::uint32_t x_full, x_free;  // of 64 columns of tokens, two a stage
  std::uint32_t x, weights;

  __device__ RingsSm90(std::uint32_t base, const FewParameters& p, int half_bytes)
      : full(base),
        free(full + p.stages * 8),
        x_full(free + p.stages * 8),
        x_free(x_full + p.x_stages * 16),
        x(base + FewShape::barrier_bytes),
        weights(x + p.x_stages * 2 * half_bytes) {}
};

// One lane: boxes from the box `first` of a row on, zeros beyond the tokens' rows and columns.
template <class K>
__device__ __forceinline__ void produce_tokens_sm90(const FewParameters& p, const RingsSm90& rings,
                                                    const CUtensorMap& map, int first, int boxes,
                                                    int token, int batch) {
  const int stages = 2 * p.x_stages;
  int stage = 0, parity = 1;
#pragma unroll 1
  for (int box = 0; box < boxes; ++box) {
    if (box >= stages) ptx::mbarrier_wait(rings.x_free + stage * 8, parity);
    const std::uint32_t full = rings.x_full + stage * 8;
    ptx::mbarrier_expect(full, p.group_tokens * 128);
    ptx::tma_load(rings.x + stage * K::half_bytes, map, full, (first + box) * 64, token, batch, 0);
    if (++stage == stages) stage = 0, parity ^= 1;
  }
}

}  // namespace mxkern::kernels::few
