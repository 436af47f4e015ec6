// mxkern/kernels/decode/tokens.cuh: the tokens of a few-token product, through shared memory.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "mxkern/kernels/decode/parameters.h"
#include "mxkern/kernels/decode/instructions.cuh"
#include "mxkern/kernels/ptx/ldmatrix.cuh"
#include "mxkern/kernels/ptx/tma.cuh"

namespace mxkern::kernels {

// Maps of the rows of groups: boxes of as many rows as a thread block takes, and of half as many as
// the ones before.
struct RowBoxes {
  static constexpr int sizes = 4;

  CUtensorMap of[sizes];
};

namespace few {

// Tokens of a thread block, which the copy engine brings: of 128 columns two boxes of 64 each, in
// rows of 128 bytes, whose eight chunks of 16 bytes are in the order chunk ^ row % 8. Zeros beyond
// K and the tokens.
template <class K>
struct Tokens {
  const CUtensorMap& map;
  int first, batch;

  __device__ __forceinline__ void load(std::uint32_t to, std::uint32_t barrier, int column) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      ptx::tma_load(to + half * (K::tokens * 128), map, barrier, column + half * 64, first, batch,
                    0);
    }
  }
};

// Which chunk a lane names to load_matrices, of the first 32 columns of a stage: of token lane % 8
// that of columns lane / 8 * 8.
__device__ __forceinline__ std::uint32_t token_chunk(int lane) {
  return static_cast<std::uint32_t>(lane % 8 * 128 + (lane / 8 ^ lane % 8) * 16);
}

// Thirty-two columns of a stage as the right operands of two steps, for each eight of the first
// tokens.
template <class K, int Eights>
__device__ __forceinline__ void read_tokens(std::uint32_t (&b)[K::tokens / 8][4],
                                            std::uint32_t chunk, int block) {
  const std::uint32_t from = (chunk ^ block % 2 * 64) + block / 2 * (K::tokens * 128);
#pragma unroll
  for (int t = 0; t < Eights; ++t) ptx::load_matrices(b[t], from + t * 1024);
}

}  // namespace few
}  // namespace mxkern::kernels
