// mxkern/kernels/quantize/tile/copy.cuh: a tile on its way to shared memory.
#pragma once

#include <cuda_pipeline_primitives.h>

#include <cstdint>

#include "mxkern/kernels/quantize/tile/quantize.cuh"

namespace mxkern::kernels {

// Has the second-level cache read a whole tile.
template <class T>
__device__ __forceinline__ void fetch_tile(const QuantizeTileParameters& p,
                                           const TilePosition& at) {
  constexpr int vector = 16 / sizeof(T);
  constexpr int vectors = tile_extent / vector;
  constexpr int rows_at_once = tile_threads / vectors;
  if (!p.vector_loads || !at.is_whole()) return;
  const T* from = static_cast<const T*>(p.x) + at.batch * p.batch_stride +
                  (at.row + threadIdx.x / vectors) * p.row_stride + at.column +
                  threadIdx.x % vectors * vector;
#pragma unroll
  for (int i = 0; i < tile_extent / rows_at_once; ++i) {
    fetch_octet(from);
    from += rows_at_once * p.row_stride;
  }
}

// Begins to copy the tile in, zeros outside of x; finish_tile waits for it.
template <class T>
__device__ __forceinline__ void begin_tile(const QuantizeTileParameters& p, const TilePosition& at,
                                           T* elements) {
  constexpr int vector = 16 / sizeof(T);
  constexpr int vectors = tile_extent / vector;
  const int width = p.vector_loads ? vector : 1;  // elements a thread copies of a row
  const int threads_a_row = p.vector_loads ? vectors : tile_extent;
  const int rows_at_once = tile_threads / threads_a_row;
  const int first_row = static_cast<int>(threadIdx.x) / threads_a_row;
  const int column = static_cast<int>(threadIdx.x) % threads_a_row * width;
  const T* from = static_cast<const T*>(p.x) + at.batch * p.batch_stride +
                  (at.row + first_row) * p.row_stride + at.column + column;
  T* to = elements + first_row * tile_extent + column;
  const std::int64_t step = rows_at_once * p.row_stride;
  if (!p.vector_loads) {
    const int rows_left = column < at.columns_left ? at.rows_left : 0;
#pragma unroll 8
    for (int row = first_row; row < tile_extent; row += rows_at_once) {
      *to = row < rows_left ? *from : T{};
      from += step;
      to += rows_at_once * tile_extent;
    }
  } else if (at.is_whole()) {
#pragma unroll
    for (int i = 0; i < tile_extent * vectors / tile_threads; ++i) {
      __pipeline_memcpy_async(to + i * tile_threads * vector, from, 16);
      from += step;
    }
  } else {
    const int left = at.columns_left - column;
    for (int row = first_row; row < tile_extent; row += rows_at_once) {
      const int there = row < at.rows_left ? left : 0;
      if (there >= vector) {
        __pipeline_memcpy_async(to, from, 16);
      } else {
#pragma unroll
        for (int k = 0; k < vector; ++k) to[k] = k < there ? from[k] : T{};
      }
      from += step;
      to += rows_at_once * tile_extent;
    }
  }
  __pipeline_commit();
}

__device__ __forceinline__ void finish_tile() {
  __pipeline_wait_prior(0);
  __syncthreads();
}

}  // namespace mxkern::kernels
