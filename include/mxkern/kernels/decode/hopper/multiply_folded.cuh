// mxkern/kernels/decode/hopper/multiply_folded.cuh: a warpgroup's sums of folded rows times
// reordered weights, on FP8 tensor cores.
//
// A weight times its block's scale, relative to its row's top, is a half whose high byte is the
// same number in E5M2. What the tensor cores add up of 128 columns is taken out and added in
// float32.
#pragma once

#include <cstdint>

#include "mxkern/kernels/decode/hopper/pipeline.cuh"
#include "mxkern/kernels/decode/hopper/scales.cuh"
#include "mxkern/kernels/decode/hopper/words.cuh"
#include "mxkern/kernels/ptx/mbarrier.cuh"
#include "mxkern/kernels/ptx/pairs.cuh"
#include "mxkern/kernels/ptx/wgmma.cuh"
#include "mxkern/kernels/ptx/wgmma_registers.cuh"

namespace mxkern::kernels::few {

// Whether the weights' row or the one eight rows on takes two multiplications.
template <class K>
__device__ __forceinline__ bool is_far_row(const DecodeParameters& p, const std::uint8_t* weights,
                                           std::int64_t row) {
  const DecodeLayout layout{p.layout.rows, p.layout.columns, K::layout.bits, K::layout.block};
  if (row >= layout.tiles_down() * DecodeLayout::tile_rows) return false;
  const auto* scales =
      reinterpret_cast<const ScaleSpread*>(weights + layout.spreads_offset()) + row;
  return scales[0].octaves > near_octaves || scales[8].octaves > near_octaves;
}

// Thirty-two columns of 16 rows as a left operand.
template <class K, bool IsFar>
__device__ __forceinline__ void decode_folded(std::uint32_t (&a)[4], const std::uint32_t* word,
                                              std::uint32_t multipliers) {
  constexpr int pairs = DecodeBits<typename K::Format>::pairs;
  constexpr std::uint32_t lift = (15 + far_exponent) << 10;
  std::uint32_t half[8];
#pragma unroll
  for (int pair = 0; pair < 8; ++pair) {
    std::uint32_t bits = decode_pair<typename K::Format, true>(word + pair / pairs, pair % pairs);
    if constexpr (IsFar) bits = ptx::multiply_pair<true>(bits, lift * 0x10001u);
    const std::uint32_t factor =
        pair % 2 == 0 ? twice_half<0>(multipliers) : twice_half<1>(multipliers);
    half[pair] = ptx::multiply_pair<true>(bits, factor);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int pair = i / 2 * 4 + i % 2;
    a[i] = __byte_perm(half[pair], half[pair + 2], 0x7531);
  }
}

// See multiply_sm90. IsFar: scales of a row are up to most_octaves apart; sums are 2^far_exponent
// times as large then.
template <class K, bool IsFar>
__device__ __forceinline__ void multiply_folded(float (&sums)[K::tokens / 2],
                                                const DecodeParameters& p, const RingsSm90& rings,
                                                int tiles, int part, int slab, int lane,
                                                std::uint32_t offsets) {
  constexpr int all = DecodeLayout::tile_blocks, blocks = 2;  // that a group of products takes
  const int parts = 1 << p.log2_parts, upper = slab % 2;
  const std::uint32_t pick = upper == 0 ? 0x4140u : 0x4342u;
  const std::uint32_t scales_at = K::layout.code_bytes() + lane / 4 * 16;
  const std::uint32_t tile_step = p.row_tiles * K::tile_bytes << p.log2_parts;
  const std::uint32_t first_tile =
      rings.weights + ((slab / 2 << p.log2_parts) + part) * K::tile_bytes;
  const std::uint32_t x_step = K::half_bytes / 16 << p.log2_parts;
  const std::uint32_t first_x = ptx::swizzled_start(rings.x + part * K::half_bytes);
  const std::uint32_t x_barrier_step = RingsSm90::pair_bytes << p.log2_parts;
  const std::uint32_t first_x_barrier = rings.x_barriers + part * RingsSm90::pair_bytes;
  std::uint32_t tile = first_tile, barrier = rings.barriers, parity = 0;
  std::uint32_t x_start = first_x, x_barrier = first_x_barrier, x_parity = 0;
  std::uint32_t x_before = rings.unused;  // the barrier to tell that the box before is free
  std::uint32_t a[all / blocks][blocks][4] = {};
  float partial[K::tokens / 2] = {};
#pragma unroll 1
  for (int left = (tiles - part + parts - 1) >> p.log2_parts; left > 0; --left) {
    ptx::mbarrier_wait(barrier, parity);
    const uint4 scale = read_shared<uint4>(tile + scales_at);
    const std::uint32_t scales[all] = {scale.x, scale.y, scale.z, scale.w};
#pragma unroll
    for (int group = 0; group < all / blocks; ++group) {
#pragma unroll
      for (int i = 0; i < blocks; ++i) {
        const int block = group * blocks + i;
        std::uint32_t word[K::Format::bits / 2];
        read_words<K>(word, tile + block * K::layout.block_bytes(), upper, lane);
        decode_folded<K, IsFar>(a[group][i], word, multipliers_of<K>(scales[block], pick, offsets));
      }
#pragma unroll
      for (int i = 0; i < blocks; ++i) ptx::wgmma_pin(a[group][i]);
      if (group == 0) {
        // What was under way are the last columns of the tile before.
        ptx::wgmma_wait<0>();
        ptx::wgmma_pin(partial);
#pragma unroll
        for (int i = 0; i < K::tokens / 2; ++i) sums[i] += partial[i];
        if (lane == 0) ptx::mbarrier_arrive(x_before);
        ptx::wgmma_pin(partial);
        ptx::mbarrier_wait(x_barrier, x_parity);
      } else {
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(barrier + RingsSm90::free);
        barrier += RingsSm90::pair_bytes, tile += tile_step;
        if (barrier == rings.x_barriers) barrier = rings.barriers, tile = first_tile, parity ^= 1;
      }
      ptx::wgmma_fence();
#pragma unroll
      for (int i = 0; i < blocks; ++i) {
        const int block = group * blocks + i;  // 32 bytes of a token
        const std::uint64_t right = ptx::swizzled_descriptor(x_start + block * 32 / 16);
        if (block == 0) {
          ptx::wgmma_set_fp8(partial, a[group][i], right);
        } else {
          ptx::wgmma_add_fp8(partial, a[group][i], right);
        }
      }
      ptx::wgmma_commit();
      // Of the two groups the other one's operands are free.
      if (group != 0) {
        ptx::wgmma_wait<1>();
#pragma unroll
        for (int i = 0; i < blocks; ++i) ptx::wgmma_pin(a[0][i]);
      }
    }
    x_before = x_barrier + RingsSm90::free;
    x_start += x_step, x_barrier += x_barrier_step;
    if (x_barrier >= rings.unused) x_start = first_x, x_barrier = first_x_barrier, x_parity ^= 1;
  }
  ptx::wgmma_wait<0>();
  ptx::wgmma_pin(partial);
#pragma unroll
  for (int i = 0; i < K::tokens / 2; ++i) sums[i] += partial[i];
}

}  // namespace mxkern::kernels::few
