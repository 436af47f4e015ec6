// mxkern/kernels/operands/both_scales.cuh: the block scales of 16-bit elements along rows and along
// columns, and how far those of a line lie apart.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/operands/both_elements.cuh"
#include "mxkern/kernels/quantize/four_octets.cuh"
#include "mxkern/numerics/scheme.h"

namespace mxkern::kernels {

// Of the counted blocks of a line: the largest scale, and how far the smallest lies below 255; 0
// where none counts.
struct LineExtremes {
  std::uint32_t largest, below;

  __device__ __forceinline__ unsigned spread() const {
    return below == 0 ? 0u : largest - (255u - below);
  }
};

// Instead of the scale of a block of zeros, which counts for nothing. Blocks of 8-bit floats have
// no scale as large as this, so that it only marks them.
inline constexpr unsigned zeros_byte = E8M0::nan_byte - 1u;

// x in MXFP8 E4M3.
struct BothParameters {
  BothElements x;
  E8M0Rule rule;
  std::uint32_t* scales;   // BothTiles::scale_words, in the order of the walk
  LineExtremes* extremes;  // BothTiles::extreme_words
};

struct BothScalesMemory {
  static constexpr int stages = 2;
  BothAhead<stages> ahead;
  // Bytes of scales, four a line; of two tiles, so that one barrier a tile is enough.
  std::uint32_t lines[2][BothTiles::lines];
};

// Thread blocks a multiprocessor, as many as its shared memory holds.
inline constexpr int both_scales_blocks = 3;
static_assert(both_scales_blocks * (sizeof(BothScalesMemory) + 1024) <= 228 * 1024);

// Elements of two more tiles are on their way while a thread block finds the scales of one. It asks
// for the first ones before it waits for the zeros of the extremes: all that lies ahead of the
// kernel that writes those is complete.
template <class T>
__global__ void __launch_bounds__(patch_threads, both_scales_blocks)
    both_scales_kernel(const __grid_constant__ BothParameters p) {
  using S = MxFp8E4M3;
  constexpr int extent = BothTiles::extent, stages = BothScalesMemory::stages;
  constexpr int blocks = extent / S::block, lanes = S::block / patch_extent;
  static_assert(blocks == 4 && lanes == 4 && SharedScales<S>::rows == 1);
  extern __shared__ __align__(128) unsigned char shared[];
  auto& memory = *reinterpret_cast<BothScalesMemory*>(shared);
  const BothWalk& walk = p.x.walk;
  const auto step = static_cast<int>(gridDim.x);
  const auto begin = [&](int stage, int index) {
    if (index < walk.count) {
      memory.ahead.begin<T>(
          stage, p.x, BothTile(walk, index),
          [](std::uint32_t to, const T* from, int bytes) { ptx::copy_async_16(to, from, bytes); });
    }
    ptx::copy_async_commit();
  };
  auto index = static_cast<int>(blockIdx.x);
#pragma unroll
  for (int i = 0; i < stages; ++i) begin(i, index + i * step);
  wait_at_start(Follows::behind);
  const BlockScaler<S> scaler{p.rule};
  const auto byte_of = [](std::uint8_t byte, std::uint32_t amax) {
    return amax == 0 ? static_cast<std::uint8_t>(zeros_byte) : byte;
  };
  for (int stage = 0; index < walk.count; index += step, stage = (stage + 1) % stages) {
    PatchElements<T> patch;
    memory.ahead.finish(stage, patch);
    PackedAmax<T> rows[2][4], pairs[4], own_pair[1];
    patch.find_amax(rows, pairs);
    begin(stage, index + stages * step);
    std::uint32_t(&lines)[BothTiles::lines] = memory.lines[stage % 2];
    auto* bytes = reinterpret_cast<std::uint8_t*>(lines);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const SharedScales<S> scales(rows[half], scaler);
      const int row = both_row() + 4 * half + SharedScales<S>::row(0);
      bytes[row * blocks + both_column() / S::block] = byte_of(scales.byte[0], scales.amax[0]);
    }
    share_amax<lanes, both_patches_across>(pairs, own_pair);
    const int pair = static_cast<int>(threadIdx.x / both_patches_across % lanes);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const std::uint32_t amax = own_pair[0].half(k);
      const int line = extent + both_column() + 2 * pair + k;
      bytes[line * blocks + both_row() / S::block] = byte_of(scaler(amax).byte, amax);
    }
    __syncthreads();
    const BothTile tile(walk, index);
    const std::uint32_t word = lines[threadIdx.x];
    p.scales[tile.scale_word(threadIdx.x)] = word;
    LineExtremes found = {0, 0};
#pragma unroll
    for (int i = 0; i < blocks; ++i) {
      const unsigned byte = word >> 8 * i & 0xFFu;
      if (byte >= zeros_byte) continue;
      found.largest = max(found.largest, byte);
      found.below = max(found.below, 255u - byte);
    }
    if (found.below != 0) {
      LineExtremes& all = p.extremes[tile.line(walk, threadIdx.x)];
      atomicMax(&all.largest, found.largest);
      atomicMax(&all.below, found.below);
    }
  }
}

}  // namespace mxkern::kernels
