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

// Whether weights of a lane's two rows, `row` and the one eight rows on, have to be multiplied
// twice to get their scales: these lie farther apart than one multiplication of halves allows.
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

// Where a warp is in the rings, whose part of K has every so many tiles and boxes.
template <class K>
struct FoldedTiles {
  const RingsSm90& rings;
  const int log2_parts, part, lane;
  const std::uint32_t tile_step, first_tile, x_step, first_x, x_barrier_step, first_x_barrier;
  std::uint32_t tile, barrier, parity = 0;
  std::uint32_t x_start, x_barrier, x_parity = 0;
  std::uint32_t x_before;  // the barrier to tell that the box before is free

  __device__ __forceinline__ FoldedTiles(const DecodeParameters& p, const RingsSm90& rings_,
                                         int part_, int slab, int lane_)
      : rings(rings_),
        log2_parts(p.log2_parts),
        part(part_),
        lane(lane_),
        tile_step(p.row_tiles * K::tile_bytes << log2_parts),
        first_tile(rings.weights + ((slab / 2 << log2_parts) + part) * K::tile_bytes),
        x_step(K::half_bytes / 16 << log2_parts),
        first_x(ptx::swizzled_start(rings.x + part * K::half_bytes)),
        x_barrier_step(RingsSm90::pair_bytes << log2_parts),
        first_x_barrier(rings.x_barriers + part * RingsSm90::pair_bytes),
        tile(first_tile),
        barrier(rings.barriers),
        x_start(first_x),
        x_barrier(first_x_barrier),
        x_before(rings.unused) {}

  __device__ __forceinline__ int turns(int tiles) const {
    return (tiles - part + (1 << log2_parts) - 1) >> log2_parts;
  }
  __device__ __forceinline__ void wait_for_weights() const { ptx::mbarrier_wait(barrier, parity); }
  __device__ __forceinline__ void free_weights() {
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(barrier + RingsSm90::free);
    barrier += RingsSm90::pair_bytes, tile += tile_step;
    if (barrier == rings.x_barriers) barrier = rings.barriers, tile = first_tile, parity ^= 1;
  }
  __device__ __forceinline__ void wait_for_box() const { ptx::mbarrier_wait(x_barrier, x_parity); }
  __device__ __forceinline__ void free_box_before() const {
    if (lane == 0) ptx::mbarrier_arrive(x_before);
  }
  __device__ __forceinline__ void next_box() {
    x_before = x_barrier + RingsSm90::free;
    x_start += x_step, x_barrier += x_barrier_step;
    if (x_barrier >= rings.unused) x_start = first_x, x_barrier = first_x_barrier, x_parity ^= 1;
  }
};

// See multiply_sm90. IsFar: scales of a row are up to most_octaves apart; sums are 2^far_exponent
// times as large then.
template <class K, bool IsFar>
__device__ __forceinline__ void multiply_folded(float (&sums)[K::tokens / 2],
                                                const DecodeParameters& p, const RingsSm90& rings,
                                                int tiles, int part, int slab, int lane,
                                                std::uint32_t offsets) {
  constexpr int all = DecodeLayout::tile_blocks, blocks = 2;  // that a group of products takes
  const int upper = slab % 2;
  const std::uint32_t pick = upper == 0 ? 0x4140u : 0x4342u;
  const std::uint32_t scales_at = K::layout.code_bytes() + lane / 4 * 16;
  FoldedTiles<K> at(p, rings, part, slab, lane);
  std::uint32_t a[all / blocks][blocks][4] = {};
  float partial[K::tokens / 2] = {};
#pragma unroll 1
  for (int left = at.turns(tiles); left > 0; --left) {
    at.wait_for_weights();
    const uint4 scale = read_shared<uint4>(at.tile + scales_at);
    const std::uint32_t scales[all] = {scale.x, scale.y, scale.z, scale.w};
#pragma unroll
    for (int group = 0; group < all / blocks; ++group) {
#pragma unroll
      for (int i = 0; i < blocks; ++i) {
        const int block = group * blocks + i;
        std::uint32_t word[K::Format::bits / 2];
        read_words<K>(word, at.tile + block * K::layout.block_bytes(), upper, lane);
        decode_folded<K, IsFar>(a[group][i], word, multipliers_of<K>(scales[block], pick, offsets));
      }
#pragma unroll
      for (int i = 0; i < blocks; ++i) ptx::wgmma_pin(a[group][i]);
      if (group == 0) {
        // What was under way are the last columns of the tile before.
        ptx::wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < blocks; ++i) ptx::wgmma_pin(a[1][i]);
        ptx::wgmma_pin(partial);
#pragma unroll
        for (int i = 0; i < K::tokens / 2; ++i) sums[i] += partial[i];
        at.free_box_before();
        ptx::wgmma_pin(partial);
        at.wait_for_box();
      } else {
        at.free_weights();
      }
      ptx::wgmma_fence();
#pragma unroll
      for (int i = 0; i < blocks; ++i) {
        const int block = group * blocks + i;  // 32 bytes of a token
        const std::uint64_t right = ptx::swizzled_descriptor(at.x_start + block * 32 / 16);
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
    at.next_box();
  }
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < blocks; ++i) ptx::wgmma_pin(a[1][i]);
  ptx::wgmma_pin(partial);
#pragma unroll
  for (int i = 0; i < K::tokens / 2; ++i) sums[i] += partial[i];
}

// Eight codes of two rows as FP8 operands: 2^-14 times their values as E5M2, a row's in each.
__device__ __forceinline__ void decode_bytes(std::uint32_t& first, std::uint32_t& second,
                                             std::uint32_t word) {
  // As decode_pair has halves, but their high bytes together, before what is not theirs is cut off.
  const std::uint32_t higher = word * 8, turned = rotate_by_six(word);
  const std::uint32_t both = pick_bits(turned, higher, 0x0FC00FC0u);
  const std::uint32_t last = bits_of_either(turned, turned, 0x001B001Bu);
  const std::uint32_t pair3 =
      bits_of_either(last * (1u << 5 | 1u << 10), last * (1u << 12), 0x8E008E00u);
  const std::uint32_t pair0 = pick_bits(higher, word, 0x0E000E00u);
  first = __byte_perm(pair0, both * 8, 0x7531) & 0x8E8E8E8Eu;
  second = __byte_perm(both, pair3, 0x7531) & 0x8E8E8E8Eu;
}

// Of two rows, the scales of a block relative to their tops.
struct BlockScales {
  float first, second;

  __device__ __forceinline__ BlockScales(std::uint32_t word, std::uint32_t pick,
                                         std::uint32_t offsets) {
    const std::uint32_t fields = __viaddmax_s16x2(__byte_perm(word, 0, pick), offsets, 0);
    first = float_of(fields << 23);
    second = float_of(fields << 7 & 0x7F800000u);
  }
};

// The same where the sums of 32 columns are multiplied by the scales of their block: whatever lies
// between the scales of a row, products of codes are exact.
template <class K>
__device__ __forceinline__ void multiply_folded_blocks(float (&sums)[K::tokens / 2],
                                                       const DecodeParameters& p,
                                                       const RingsSm90& rings, int tiles, int part,
                                                       int slab, int lane, std::uint32_t offsets) {
  constexpr int all = DecodeLayout::tile_blocks;
  constexpr int blocks = K::tokens == 8 ? all : 2;  // that are multiplied at a time
  constexpr int groups = all / blocks;
  const int upper = slab % 2;
  const std::uint32_t pick = upper == 0 ? 0x4140u : 0x4342u;
  const std::uint32_t scales_at = K::layout.code_bytes() + lane / 4 * 16;
  FoldedTiles<K> at(p, rings, part, slab, lane);
  // While a group is under way the next one's operands are made. Its sums can be read when all of
  // it is over, or the compiler would wait for each product.
  std::uint32_t a[2][blocks][4] = {}, scales[blocks] = {};
  float partial[blocks][K::tokens / 2] = {};
  const auto finish = [&](int set) {
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < blocks; ++i) {
      ptx::wgmma_pin(a[set][i]);
      ptx::wgmma_pin(partial[i]);
      const BlockScales scale(scales[i], pick, offsets);
#pragma unroll
      for (int j = 0; j < K::tokens / 2; ++j) {
        sums[j] = fmaf(partial[i][j], j / 2 % 2 == 0 ? scale.first : scale.second, sums[j]);
      }
    }
  };
  const auto turn = [&](int set, int group, const uint4& v) {
    const std::uint32_t words[all] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < blocks; ++i) {
      std::uint32_t word[2];
      read_words<K>(word, at.tile + (group * blocks + i) * K::layout.block_bytes(), upper, lane);
      decode_bytes(a[set][i][0], a[set][i][1], word[0]);
      decode_bytes(a[set][i][2], a[set][i][3], word[1]);
      ptx::wgmma_pin(a[set][i]);
    }
    finish(1 - set);
    if (group == 0) {
      at.free_box_before();
      at.wait_for_box();
    }
    if (group + 1 == groups) at.free_weights();
#pragma unroll
    for (int i = 0; i < blocks; ++i) scales[i] = words[group * blocks + i];
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < blocks; ++i) {
      const int block = group * blocks + i;  // 32 bytes of a token
      ptx::wgmma_set_fp8(partial[i], a[set][i],
                         ptx::swizzled_descriptor(at.x_start + block * 32 / 16));
    }
    ptx::wgmma_commit();
  };
  // A tile, of which the first group has this set of operands.
  const auto take = [&](int first_set) {
    at.wait_for_weights();
    const uint4 v = read_shared<uint4>(at.tile + scales_at);
#pragma unroll
    for (int group = 0; group < groups; ++group) turn((first_set + group) % 2, group, v);
    at.next_box();
  };
  int left = at.turns(tiles);
  if constexpr (groups % 2 == 0) {
#pragma unroll 1
    for (; left > 0; --left) take(0);
    finish(1);
  } else {
#pragma unroll 1
    for (; left > 1; left -= 2) take(0), take(1);
    if (left > 0) take(0);
    finish(0);  // or the other set's, which is over as well then
#pragma unroll
    for (int i = 0; i < blocks; ++i) ptx::wgmma_pin(a[1][i]);
  }
}

}  // namespace mxkern::kernels::few
