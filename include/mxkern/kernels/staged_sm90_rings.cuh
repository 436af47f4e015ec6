// mxkern/kernels/staged_sm90_rings.cuh: what lies where in the shared memory of gemm_staged_sm90,
// and what brings codes and tokens there.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "mxkern/kernels/few_parameters.h"
#include "mxkern/kernels/few_ptx.cuh"
#include "mxkern/kernels/ptx/tma.cuh"
#include "mxkern/kernels/staged_sm90_shape.h"

namespace mxkern::kernels::staged {

// A place in a ring, and the parity of the phase that ends when it is full.
template <int Stages>
struct Turn {
  int stage = 0, parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == Stages) stage = 0, parity ^= 1;
  }
};

// Barriers, then stages of decoded weights, of tokens and of codes.
template <class K>
struct Rings {
  static constexpr int decoded_stages = K::Shape::decoded_stages, x_stages = K::x_stages;
  std::uint32_t base;
  int stages;  // of codes, that each row of tiles has

  __device__ __forceinline__ std::uint32_t full(int stage) const { return base + stage * 8; }
  __device__ __forceinline__ std::uint32_t free(int stage) const { return base + 64 + stage * 8; }
  __device__ __forceinline__ std::uint32_t x_full(int stage) const {
    return base + 128 + stage * 8;
  }
  __device__ __forceinline__ std::uint32_t codes_full(int row, int stage) const {
    return base + 256 + (row * K::Shape::most_stages + stage) * 8;
  }
  __device__ __forceinline__ std::uint32_t received() const {
    return base + FewShape::barrier_bytes - 8;
  }
  __device__ __forceinline__ std::uint32_t decoded() const {
    return base + FewShape::barrier_bytes;
  }
  __device__ __forceinline__ std::uint32_t x() const {
    return decoded() + decoded_stages * K::decoded_bytes;
  }
  __device__ __forceinline__ std::uint32_t codes(int row, int stage) const {
    return x() + x_stages * K::x_bytes + (row * stages + stage) * K::tile_bytes;
  }

  // By one warp.
  __device__ __forceinline__ void init(int lane) const {
    static_assert(256 + K::row_tiles * K::Shape::most_stages * 8 <= FewShape::barrier_bytes - 8);
    if (lane < decoded_stages) {
      few::init_barrier(full(lane), K::decoders);
      few::init_barrier(free(lane), K::warps);
    }
    if (lane < x_stages) few::init_barrier(x_full(lane), 1);
    if (lane < K::row_tiles) {
#pragma unroll 1
      for (int i = 0; i < stages; ++i) few::init_barrier(codes_full(lane, i), 1);
    }
    if (lane == 0) few::init_barrier(received(), 1);
    few::fence_barrier_init();
    __syncwarp();
  }

  // One lane: a tile.
  __device__ __forceinline__ void copy_codes(int row, int stage, const std::uint8_t* from,
                                             std::uint64_t policy) const {
    const std::uint32_t here = codes_full(row, stage);
    few::arrive_expecting(here, K::tile_bytes);
    few::copy_bulk(codes(row, stage), from, K::tile_bytes, here, policy);
  }

  // One lane: the first tiles of a row, from the one `begin` on.
  __device__ __forceinline__ void copy_row(const std::uint8_t* from, int row, int end,
                                           int begin = 0) const {
    const std::uint64_t policy = few::evict_first_policy();
#pragma unroll 1
    for (int i = begin; i < end; ++i) copy_codes(row, i, from + i * K::tile_bytes, policy);
  }
};

// One lane: tokens as they lie, boxes of 64 columns; zeros beyond the matrix.
template <class K>
struct TokenLoader {
  const Rings<K>& rings;
  const CUtensorMap& map;
  int bytes, first_column, token, batch;

  __device__ __forceinline__ void load(int step, int stage) const {
    const std::uint32_t full = rings.x_full(stage);
    few::arrive_expecting(full, bytes);
    ptx::tma_load(rings.x() + stage * K::x_bytes, map, full,
                  first_column + step * K::Shape::step_columns, token, batch, 0);
  }
};

}  // namespace mxkern::kernels::staged
