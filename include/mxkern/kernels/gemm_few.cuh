// mxkern/kernels/gemm_few.cuh: few tokens times reordered weights, at the speed of the weights.
//
// out[m, n] = x[m, :] . w[n, :]. Weights are the side of 16 of mma.m16n8k16, tokens that of 8. A
// warp takes tiles of 32 rows x 128 columns of weights. The warps of a thread block share a few
// tiles of rows and take turns along K; the thread blocks of a cluster have a part of K each. All
// parts are added in a fixed order, through shared memory. Weights come in bulk copies into a ring
// of each warp; a few more warps copy the tokens, for all. Codes become bfloat16 or half in
// registers; block scales multiply the float32 sums of their blocks.
#pragma once

#include <cstdint>

#include "mxkern/kernels/few_decode.cuh"
#include "mxkern/kernels/few_finish.cuh"
#include "mxkern/kernels/few_parameters.h"

namespace mxkern::kernels {
namespace few {

// A tile's scales, or what they are multiplied as, to a word each in `floats`: those of a row are
// needed by four lanes, each of which makes a fourth of them, for all.
template <class K>
__device__ __forceinline__ void widen_scales(std::uint32_t tile, std::uint32_t floats, int lane) {
  using S = typename K::Scheme;
  constexpr int block_scales = DecodeLayout::block_columns / S::block;
#pragma unroll
  for (int i = 0; i < block_scales; ++i) {
    const std::uint32_t at = (lane * block_scales + i) * 4;
    const std::uint32_t word = read_shared<std::uint32_t>(tile + K::layout.code_bytes() + at);
    std::uint32_t made[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      made[j] = K::scales_weights ? multiplier_of<K>(word, j) : bits_of(scale_of<S>(word, j));
    }
    write_shared(floats + at * 4, uint4{made[0], made[1], made[2], made[3]});
  }
}

// Adds the products of one tile: 32 rows x 128 columns, from shared memory. Before the last of its
// blocks is decoded, `meanwhile` is called: what it waits for passes beside that.
template <class K, class Meanwhile>
__device__ __forceinline__ void multiply_tile(float (&sums)[2][K::tokens / 8][4],
                                              std::uint32_t tile, std::uint32_t floats,
                                              std::uint32_t x, int x_stride, int lane,
                                              Meanwhile&& meanwhile) {
  using S = typename K::Scheme;
  using Format = typename K::Format;
  using Bits = DecodeBits<Format>;
  constexpr int words = Format::bits, blocks = DecodeLayout::tile_blocks;
  constexpr int block_scales = DecodeLayout::block_columns / S::block;
  const std::uint32_t x_lane = x + lane / 4 * x_stride + lane % 4 * (S::block == 16 ? 8 : 16);
  const std::uint32_t floats_lane = floats + lane / 4 * (blocks * block_scales * 16);
#pragma unroll
  for (int block = 0; block < blocks; ++block) {
    std::uint32_t word[words];
#pragma unroll
    for (int plane = 0; plane < words / 4; ++plane) {
      const uint4 v =
          read_shared<uint4>(tile + block * K::layout.block_bytes() + plane * 512 + lane * 16);
      word[4 * plane] = v.x, word[4 * plane + 1] = v.y;
      word[4 * plane + 2] = v.z, word[4 * plane + 3] = v.w;
    }
    if constexpr (words % 4 == 2) {
      const uint2 v =
          read_shared<uint2>(tile + block * K::layout.block_bytes() + words / 4 * 512 + lane * 8);
      word[words - 2] = v.x, word[words - 1] = v.y;
    }
    if (block == 0) __syncwarp();  // the scales are there
    if (block == blocks - 1) meanwhile();
    std::uint32_t scale[block_scales][4];
#pragma unroll
    for (int i = 0; i < block_scales; ++i) {
      const uint4 v = read_shared<uint4>(floats_lane + (block * block_scales + i) * 16);
      scale[i][0] = v.x, scale[i][1] = v.y, scale[i][2] = v.z, scale[i][3] = v.w;
    }
    std::uint32_t a[2][2][4];  // [rows][step][register]
#pragma unroll
    for (int pair = 0; pair < 16; ++pair) {
      std::uint32_t& bits = a[pair / 8][pair / 4 % 2][pair % 4];
      bits = decode_pair<Format, K::is_half>(word + pair / Bits::pairs * Bits::words,
                                             pair % Bits::pairs);
      if constexpr (K::scales_weights) {
        bits = multiply_pair(bits, scale[pair / 4 % 2 % block_scales][pair / 8 * 2 + pair % 2]);
      }
    }
#pragma unroll
    for (int t = 0; t < K::tokens / 8; ++t) {
      std::uint32_t b[4];
      const std::uint32_t from = x_lane + t * 8 * x_stride + block * 64;
      if constexpr (S::block == 16) {
        const uint2 low = read_shared<uint2>(from), high = read_shared<uint2>(from + 32);
        b[0] = low.x, b[1] = low.y, b[2] = high.x, b[3] = high.y;
      } else {
        const uint4 v = read_shared<uint4>(from);
        b[0] = v.x, b[1] = v.y, b[2] = v.z, b[3] = v.w;
      }
      if constexpr (K::scales_x) {
#pragma unroll
        for (std::uint32_t& pair : b) {
          pair = multiply_pair(pair, static_cast<std::uint32_t>(127 + K::x_exponent) * 0x00800080u);
        }
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if constexpr (K::scales_weights) {
          multiply<K::is_half>(sums[i][t], a[i][0], b[0], b[1], sums[i][t]);
          multiply<K::is_half>(sums[i][t], a[i][1], b[2], b[3], sums[i][t]);
        } else {
          constexpr float zero[4] = {0.0f, 0.0f, 0.0f, 0.0f};
          float part[4], second[4];
          multiply<K::is_half>(part, a[i][0], b[0], b[1], zero);
          if constexpr (block_scales == 1) {
            multiply<K::is_half>(second, a[i][1], b[2], b[3], part);
          } else {
            multiply<K::is_half>(second, a[i][1], b[2], b[3], zero);
          }
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const int row = 2 * i + j / 2;
            if constexpr (block_scales == 2) {
              sums[i][t][j] = fmaf(part[j], float_of(scale[0][row]), sums[i][t][j]);
            }
            sums[i][t][j] = fmaf(second[j], float_of(scale[block_scales - 1][row]), sums[i][t][j]);
          }
        }
      }
    }
  }
}

// A few warps copy the tokens of the thread block's part of K, stage by stage; zeros beyond K. Not
// by bulk copies: they would wait for those of the weights, many of which are always under way.
template <class K>
__device__ __forceinline__ void produce_tokens(const FewParameters& p, const std::uint8_t* x,
                                               int tokens, int first, int tiles, std::uint32_t ring,
                                               std::uint32_t full, std::uint32_t free, int producer,
                                               int lane) {
  constexpr int log2_chunks = 4;  // of 16 bytes, in a tile
  static_assert(DecodeLayout::tile_columns * 2 == 16 << log2_chunks);
  const int parts = 1 << p.log2_parts, turns = (tiles + parts - 1) >> p.log2_parts;
  const int x_stride = K::shape().x_stride(parts), stage_bytes = K::shape().x_stage_bytes(parts);
  // A warp copies two rows at a time where a row is one tile; warps take turns.
  const int chunks = parts << log2_chunks;
  const int in_turn = chunks < 32 ? 2 : 1, rows = in_turn * K::producers;
  const int lane_token = producer * in_turn + (chunks < 32 ? lane >> log2_chunks : 0);
  const int lane_chunk = chunks < 32 ? lane & (chunks - 1) : lane;
  const std::int64_t end = p.layout.columns * 2;
  int stage = 0, round = 0;
#pragma unroll 1
  for (int i = 0; i < turns; ++i) {
    if (round > 0) wait(free + stage * 8, (round - 1) & 1);
#pragma unroll 1
    for (int chunk = lane_chunk; chunk < chunks; chunk += 32) {
      const std::int64_t byte = (static_cast<std::int64_t>(first + i * parts) << 8) + chunk * 16;
      const auto left = static_cast<int>(lower_of<std::int64_t>(end - byte, 16));
      const int bytes = higher_of(left, 0);
      const std::uint8_t* from = x + lane_token * p.x_row_bytes + (left > 0 ? byte : 0);
      const std::int64_t step = rows * p.x_row_bytes;
      std::uint32_t to = ring + stage * stage_bytes + lane_token * x_stride + chunk * 16;
      int token = lane_token;
#pragma unroll 1
      for (; token + 3 * rows < tokens; token += 4 * rows) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          copy_chunk(to, from, bytes);
          from += step, to += rows * x_stride;
        }
      }
#pragma unroll 1
      for (; token < tokens; token += rows) {
        copy_chunk(to, from, bytes);
        from += step, to += rows * x_stride;
      }
    }
    arrive_after_chunks(full + stage * 8);
    if (++stage == p.x_stages) stage = 0, ++round;
  }
}

}  // namespace few

// Grid: ranks of the cluster and token tiles along x, groups of row tiles along y, batch along z.
template <class K>
__global__ void __launch_bounds__(K::threads, 1)
    gemm_few_kernel(const __grid_constant__ FewParameters p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::uint8_t shared[];
  const std::uint32_t base = few::shared_address(shared);
  // The same in all lanes, which the compiler shall know.
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rank = static_cast<int>(blockIdx.x) & ((1 << p.log2_ranks) - 1);
  const int token_tile = static_cast<int>(blockIdx.x) >> p.log2_ranks;
  const std::int64_t first_down = static_cast<std::int64_t>(blockIdx.y) * p.row_tiles;
  const std::int64_t batch = blockIdx.z;
  const std::int64_t first_token = static_cast<std::int64_t>(token_tile) * K::tokens;
  // Of the thread block, along K: a tile for each part in turn.
  const int first = p.tiles * rank >> p.log2_ranks;
  const int tiles = (p.tiles * (rank + 1) >> p.log2_ranks) - first;
  const int parts = 1 << p.log2_parts, active = p.row_tiles << p.log2_parts;
  const int part = warp & (parts - 1);
  const std::int64_t down = first_down + (warp >> p.log2_parts);
  const bool has_rows = warp < active && down < p.layout.tiles_down();
  const int turns = (tiles - part + parts - 1) >> p.log2_parts;
  const std::uint8_t* weights = p.weights + batch * p.weight_batch_bytes;

  // Barriers: a ring's stage is full; a stage of tokens is full, and free again.
  const std::uint32_t full = base + warp * p.stages * 8;
  const std::uint32_t x_full = base + active * p.stages * 8;
  const std::uint32_t x_free = x_full + p.x_stages * 8;
  const std::uint32_t rings = base + FewShape::barrier_bytes;
  const std::uint32_t ring = rings + warp * p.stages * K::tile_bytes;
  const std::uint32_t floats =
      rings + active * p.stages * K::tile_bytes + warp * 2 * K::shape().scale_bytes();
  const std::uint32_t x_ring =
      rings + active * (p.stages * K::tile_bytes + 2 * K::shape().scale_bytes());
  const std::uint8_t* from = weights + (down * p.tiles + first + part) * K::tile_bytes;
  const std::int64_t step = static_cast<std::int64_t>(parts) * K::tile_bytes;
  const std::uint64_t policy = few::evict_first_policy();

  few::let_next_kernel_start();
  if (p.log2_ranks > 0) few::cluster_arrive_relaxed();
  if (lane == 0) {
    if (warp < active) {
#pragma unroll 1
      for (int i = 0; i < p.stages; ++i) few::init_barrier(full + i * 8, 1);
    } else if (warp == K::warps) {
#pragma unroll 1
      for (int i = 0; i < p.x_stages; ++i) {
        few::init_barrier(x_full + i * 8, 32 * K::producers);
        few::init_barrier(x_free + i * 8, active);
      }
    }
    few::fence_barrier_init();
    // Weights do not depend on what the kernel before this one computes. Of the rows' kinds, which
    // are read last, so much now that they are in the L2 cache then.
    if (has_rows && part == 0) few::prefetch(weights + p.layout.kinds_offset() + down * 32);
    // The first tile alone, since the first tokens would wait behind more.
    if (has_rows && turns > 0) {
      few::arrive_expecting(full, K::tile_bytes);
      few::copy_bulk(ring, from, K::tile_bytes, full, policy);
    }
  }
  few::wait_for_previous_kernel();
  __syncthreads();

  if (warp >= K::warps) {
    const std::uint8_t* x = p.x + batch * p.x_batch_bytes + first_token * p.x_row_bytes;
    const int tokens = static_cast<int>(lower_of<std::int64_t>(p.tokens - first_token, K::tokens));
    few::produce_tokens<K>(p, x, tokens, first, tiles, x_ring, x_full, x_free, warp - K::warps,
                           lane);
  }

  float sums[2][K::tokens / 8][4] = {};
  if (warp < active) {
    const int x_stride = K::shape().x_stride(parts),
              x_stage_bytes = K::shape().x_stage_bytes(parts);
    const std::uint32_t x_part = x_ring + part * (DecodeLayout::tile_columns * 2);
    const int all_turns = (tiles + parts - 1) >> p.log2_parts;
    const std::uint8_t* next = from + p.stages * step;
    int stage = 0, parity = 0, x_stage = 0, x_parity = 0;
    if (K::widens_ahead && has_rows && turns > 0) {
      few::wait(full, 0);
      few::widen_scales<K>(ring, floats, lane);
    }
#pragma unroll 1
    for (int i = 0; i < all_turns; ++i) {
      few::wait(x_full + x_stage * 8, x_parity);
      if (i == 0 && has_rows && lane == 0) {
#pragma unroll 1
        for (int j = 1; j < p.stages && j < turns; ++j) {
          few::arrive_expecting(full + j * 8, K::tile_bytes);
          few::copy_bulk(ring + j * K::tile_bytes, from + j * step, K::tile_bytes, full + j * 8,
                         policy);
        }
      }
      const int now = stage, now_parity = parity;
      if (++stage == p.stages) stage = 0, parity ^= 1;
      if (has_rows && i < turns) {
        constexpr int scale_bytes = K::shape().scale_bytes();
        const std::uint32_t tile = ring + now * K::tile_bytes;
        const std::uint32_t scales = floats + (i & 1) * scale_bytes;
        if constexpr (!K::widens_ahead) {
          few::wait(full + now * 8, now_parity);
          few::widen_scales<K>(tile, scales, lane);
        }
        few::multiply_tile<K>(sums, tile, scales, x_part + x_stage * x_stage_bytes, x_stride, lane,
                              [&] {
                                if (!K::widens_ahead || i + 1 >= turns) return;
                                few::wait(full + stage * 8, parity);
                                few::widen_scales<K>(ring + stage * K::tile_bytes,
                                                     floats + (~i & 1) * scale_bytes, lane);
                              });
      }
      __syncwarp();
      if (lane == 0) {
        few::arrive(x_free + x_stage * 8);
        if (has_rows && i + p.stages < turns) {
          few::arrive_expecting(full + now * 8, K::tile_bytes);
          few::copy_bulk(ring + now * K::tile_bytes, next, K::tile_bytes, full + now * 8, policy);
        }
      }
      next += step;
      if (++x_stage == p.x_stages) x_stage = 0, x_parity ^= 1;
    }
  }

  // The sums take the place of the rings, which are read to the end.
  __syncthreads();
  if (warp < active) {
    const std::uint32_t to = rings + warp * K::shape().sum_bytes();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int t = 0; t < K::tokens / 8; ++t) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int token = t * 8 + lane % 4 * 2 + j % 2, row = i * 16 + j / 2 * 8 + lane / 4;
          asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + token * FewShape::sum_stride + row * 4),
                       "f"(sums[i][t][j])
                       : "memory");
        }
      }
    }
  }
  __syncthreads();
  const std::uint32_t inbox =
      base + p.shared_bytes - K::shape().inbox_bytes(p.row_tiles, p.log2_ranks);
  few::finish<K>(p, weights, rings, inbox, batch, first_down * DecodeLayout::tile_rows, first_token,
                 rank);
#endif
}

}  // namespace mxkern::kernels
