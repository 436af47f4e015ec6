// mxkern/kernels/any/narrow_quantize.cuh: rows and tiles that are quantized to codes of at most 8
// bits by schemes known at run time. Compiled, never executed on a GPU.
#pragma once

#include <cstdint>

#include "mxkern/kernels/any/narrow.cuh"

namespace mxkern::kernels {

__device__ __forceinline__ NarrowPlace narrow_place(const NarrowParameters& p,
                                                    std::uint32_t octet) {
  const std::uint32_t line = p.octets_of_row.quotient(octet);
  const std::uint32_t of_row = octet - line * p.octets_of_row.size;
  return {line, of_row, octet < p.octets && of_row < p.octets_there};
}

// Blocks of one row and of 8 to 256 elements, a power of two: their lanes lie side by side in a
// warp. Thread blocks stay, for the sake of the table, and load an octet ahead.
template <class T, NarrowKind kind, bool fake>
__global__ void __launch_bounds__(narrow_threads, 4)
    narrow_rows_kernel(const __grid_constant__ NarrowParameters p) {
  __shared__ NarrowScales scales;
  const TensorScale whole = scales.fill(p);
  const std::uint32_t lanes = p.octets_of_block.size;
  const std::uint32_t step = gridDim.x * narrow_threads;
  std::uint32_t octet = blockIdx.x * narrow_threads + threadIdx.x;
  // Whole warps go on together, as they shuffle.
  std::uint32_t start = octet - threadIdx.x % 32;
  NarrowPlace at = narrow_place(p, octet);
  RawOctet<T> raw = narrow_load<T>(p, at);
  for (; start < p.octets; start += step, octet += step) {
    const NarrowPlace next_at = narrow_place(p, octet + step);
    const RawOctet<T> next = narrow_load<T>(p, next_at);
    std::uint32_t amax = narrow_amax(raw);
    for (std::uint32_t distance = 1; distance < lanes; distance *= 2) {
      amax = higher_of(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, distance));
    }
    const bool of_rows = p.any.scheme.tensor_scales == TensorScales::row;
    if (octet < p.octets) {
      const TensorScale tensor = of_rows ? any_tensor(p.any, at.line) : whole;
      const AnyBlockScale scale = scales.of(p, amax, tensor);
      narrow_finish<T, kind, fake>(p, raw, at, scale, tensor);
      if (!fake && (at.of_row & (lanes - 1)) == 0) {
        if (p.any.layout == ScaleLayout::row_major) {
          any_store_scale(p.any.scales, p.scale_bits, p.octets_of_block.quotient(octet),
                          scale.code);
        } else {
          const std::uint32_t batch = p.rows.quotient(static_cast<std::uint32_t>(at.line));
          narrow_store_scale(p, batch, at.line - std::int64_t{batch} * p.rows.size,
                             p.octets_of_block.quotient(at.of_row), scale.code);
        }
        if (p.any.tensor_scale != nullptr && at.of_row == 0 && (of_rows || at.line == 0)) {
          p.any.tensor_scale[at.line] = tensor.stored;
        }
      }
    }
    at = next_at;
    raw = next;
  }
}

// Blocks of several rows, of squares or of whole rows: `team` threads each, 32 or all. They read
// them twice, the second time from a cache.
template <class T, NarrowKind kind, bool fake, int team>
__global__ void __launch_bounds__(narrow_threads, 4)
    narrow_tiles_kernel(const __grid_constant__ NarrowParameters p) {
  static_assert(team == 32 || team == narrow_threads);
  __shared__ NarrowScales scales;
  __shared__ std::uint32_t largest[2][narrow_threads / 32];
  const TensorScale whole = scales.fill(p);
  constexpr std::uint32_t teams = narrow_threads / team;
  const std::uint32_t member = threadIdx.x % team;
  const auto group = static_cast<std::uint32_t>(p.any.group);
  const bool of_rows = p.any.scheme.tensor_scales == TensorScales::row;
  int turn = 0;
  for (std::uint32_t tile = blockIdx.x * teams + threadIdx.x / team; tile < p.tiles;
       tile += gridDim.x * teams, turn ^= 1) {
    const std::uint32_t of_all = p.across.quotient(tile);
    const std::uint32_t block = tile - of_all * p.across.size;
    const std::uint32_t batch = p.down.quotient(of_all);
    const std::uint32_t band = of_all - batch * p.down.size;
    const std::uint32_t row = band * group;
    const std::uint32_t rows = lower_of(group, p.rows.size - row);
    const std::uint32_t octets = rows * p.octets_of_block.size;
    const std::int64_t line = std::int64_t{batch} * p.rows.size + row;
    const auto place = [&](std::uint32_t i) {
      const std::uint32_t down = p.octets_of_block.quotient(i);
      const std::uint32_t of_row = i + (block - down) * p.octets_of_block.size;
      return NarrowPlace{line + down, of_row, of_row < p.octets_there};
    };
    std::uint32_t amax = 0;
#pragma unroll 4
    for (std::uint32_t i = member; i < octets; i += team) {
      amax = higher_of(amax, narrow_amax(narrow_load<T>(p, place(i))));
    }
    amax = __reduce_max_sync(0xFFFFFFFFu, amax);
    if constexpr (team > 32) {
      // Of one tile and the next, so that one barrier does.
      if (threadIdx.x % 32 == 0) largest[turn][threadIdx.x / 32] = amax;
      __syncthreads();
#pragma unroll
      for (int i = 0; i < narrow_threads / 32; ++i) amax = higher_of(amax, largest[turn][i]);
    }
    const TensorScale tensor = of_rows ? any_tensor(p.any, line) : whole;
    const AnyBlockScale scale = scales.of(p, amax, tensor);
    if constexpr (!fake) {
      if (p.any.square) {
        for (std::uint32_t r = member; r < rows; r += team) {
          narrow_store_scale(p, batch, row + r, block, scale.code);
        }
      } else if (member == 0) {
        narrow_store_scale(p, batch, band, block, scale.code);
      }
      if (p.any.tensor_scale != nullptr && member == 0 && block == 0 && (of_rows || line == 0)) {
        p.any.tensor_scale[line] = tensor.stored;
      }
    }
#pragma unroll 2
    for (std::uint32_t i = member; i < octets; i += team) {
      const NarrowPlace at = place(i);
      narrow_finish<T, kind, fake>(p, narrow_load<T>(p, at), at, scale, tensor);
    }
  }
}

}  // namespace mxkern::kernels
