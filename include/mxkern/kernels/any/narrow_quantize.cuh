// mxkern/kernels/any/narrow_quantize.cuh: rows and tiles that are quantized to codes of at most 8
// bits by schemes known at run time.
#pragma once

#include <cstdint>

#include "mxkern/kernels/any/narrow.cuh"

namespace mxkern::kernels {

__device__ __forceinline__ NarrowPlace narrow_place(const NarrowParameters& p, std::uint32_t part) {
  if (part >= p.parts) return {};
  const std::uint32_t line = p.parts_of_row.quotient(part);
  const std::uint32_t of_row = part - line * p.parts_of_row.size;
  return {line, of_row, true, of_row < p.parts_there};
}

// Blocks of one row whose lanes, up to 32 and a power of two, lie side by side in a warp. Thread
// blocks stay, for the sake of the table, and load a part ahead.
template <class T, NarrowKind kind, bool fake, int octets>
__global__ void __launch_bounds__(narrow_threads, 4)
    narrow_rows_kernel(const __grid_constant__ NarrowParameters p) {
  __shared__ NarrowScales scales;
  const TensorScale whole = scales.fill(p);
  const std::uint32_t lanes = p.parts_of_block.size;
  const std::uint32_t step = gridDim.x * narrow_threads;
  std::uint32_t index = blockIdx.x * narrow_threads + threadIdx.x;
  NarrowPlace at = narrow_place(p, index);
  NarrowPart<T, octets> part = narrow_load<T, octets>(p, at);
  // Whole warps go on together, as they shuffle.
  for (std::uint32_t end = p.parts + threadIdx.x % 32; index < end; index += step) {
    const NarrowPlace next_at = narrow_place(p, index + step);
    const NarrowPart<T, octets> next = narrow_load<T, octets>(p, next_at);
    std::uint32_t amax = narrow_amax(part);
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      if (distance < lanes) {
        amax = higher_of(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, distance));
      }
    }
    const NarrowScale scale = scales.of(p, amax, whole, at.line, at.is_there && at.of_row == 0);
    narrow_finish<T, kind, fake>(p, part, at, scale);
    if (!fake && at.is_there && (at.of_row & (lanes - 1)) == 0) {
      if (p.any.layout == ScaleLayout::row_major) {
        any_store_scale(p.any.scales, p.scale_bits, p.parts_of_block.quotient(index), scale.code);
      } else {
        const std::uint32_t batch = p.rows.quotient(at.line);
        narrow_store_scale(p, batch, at.line - batch * p.rows.size,
                           p.parts_of_block.quotient(at.of_row), scale.code);
      }
    }
    at = next_at;
    part = next;
  }
}

// Blocks of several rows, of squares or of whole rows: `team` threads each, 32 or all. They read
// them twice, the second time from a cache.
template <class T, NarrowKind kind, bool fake, int octets, int team>
__global__ void __launch_bounds__(narrow_threads, 4)
    narrow_tiles_kernel(const __grid_constant__ NarrowParameters p) {
  static_assert(team == 32 || team == narrow_threads);
  __shared__ NarrowScales scales;
  __shared__ std::uint32_t largest[2][narrow_threads / 32];
  const TensorScale whole = scales.fill(p);
  constexpr std::uint32_t teams = narrow_threads / team;
  const std::uint32_t member = threadIdx.x % team;
  const auto group = static_cast<std::uint32_t>(p.any.group);
  int turn = 0;
  for (std::uint32_t tile = blockIdx.x * teams + threadIdx.x / team; tile < p.tiles;
       tile += gridDim.x * teams, turn ^= 1) {
    const std::uint32_t of_all = p.across.quotient(tile);
    const std::uint32_t block = tile - of_all * p.across.size;
    const std::uint32_t batch = p.down.quotient(of_all);
    const std::uint32_t band = of_all - batch * p.down.size;
    const std::uint32_t row = band * group;
    const std::uint32_t rows = lower_of(group, p.rows.size - row);
    const std::uint32_t parts = rows * p.parts_of_block.size;
    const std::uint32_t line = batch * p.rows.size + row;
    const auto place = [&](std::uint32_t i) {
      if (i >= parts) return NarrowPlace{};
      const std::uint32_t down = p.parts_of_block.quotient(i);
      const std::uint32_t of_row = i + (block - down) * p.parts_of_block.size;
      return NarrowPlace{line + down, of_row, true, of_row < p.parts_there};
    };
    std::uint32_t amax = 0;
#pragma unroll 4
    for (std::uint32_t i = member; i < parts; i += team) {
      amax = higher_of(amax, narrow_amax(narrow_load<T, octets>(p, place(i))));
    }
    amax = __reduce_max_sync(0xFFFFFFFFu, amax);
    if constexpr (team > 32) {
      // The largest of this tile and of the next one lie apart, so that one barrier a tile does.
      if (threadIdx.x % 32 == 0) largest[turn][threadIdx.x / 32] = amax;
      __syncthreads();
#pragma unroll
      for (int i = 0; i < narrow_threads / 32; ++i) amax = higher_of(amax, largest[turn][i]);
    }
    const NarrowScale scale = scales.of(p, amax, whole, line, member == 0 && block == 0);
    if constexpr (!fake) {
      if (p.any.square) {
        for (std::uint32_t r = member; r < rows; r += team) {
          narrow_store_scale(p, batch, row + r, block, scale.code);
        }
      } else if (member == 0) {
        narrow_store_scale(p, batch, band, block, scale.code);
      }
    }
#pragma unroll 2
    for (std::uint32_t i = member; i < parts + member % 32; i += team) {
      const NarrowPlace at = place(i);
      narrow_finish<T, kind, fake>(p, narrow_load<T, octets>(p, at), at, scale);
    }
  }
}

}  // namespace mxkern::kernels
