// mxkern/kernels/decode/multiply.cuh: a warp's products of 128 columns of weights and of few
// tokens, by mma.sync.
#pragma once

#include <cstdint>

#include "mxkern/kernels/decode/parameters.h"
#include "mxkern/kernels/decode/tokens.cuh"
#include "mxkern/kernels/decode/upcast.cuh"
#include "mxkern/kernels/ptx/pairs.cuh"

namespace mxkern::kernels::few {

// A warp's sums: of its tiles, their halves of 16 rows, and each eight tokens.
template <class K>
using WarpSums = float[K::warp_tiles][2][K::tokens / 8][4];

// Tokens for weights that are not scaled.
template <class K, int Eights>
__device__ __forceinline__ void scale_tokens(std::uint32_t (&b)[K::tokens / 8][4]) {
#pragma unroll
  for (int t = 0; t < Eights; ++t) {
#pragma unroll
    for (std::uint32_t& pair : b[t]) {
      pair =
          ptx::multiply_pair(pair, static_cast<std::uint32_t>(127 + K::x_exponent) * 0x00800080u);
    }
  }
}

// The products of 32 columns and the rows of one tile, with so many times eight tokens.
template <class K, int Eights>
__device__ __forceinline__ void multiply_block(float (&sums)[2][K::tokens / 8][4],
                                               const std::uint32_t (&word)[K::Format::bits],
                                               const std::uint32_t (&b)[K::tokens / 8][4],
                                               std::uint32_t floats) {
  using Format = typename K::Format;
  using Bits = DecodeBits<Format>;
  const uint4 scales = read_shared<uint4>(floats);
  const std::uint32_t scale[4] = {scales.x, scales.y, scales.z, scales.w};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    std::uint32_t a[2][4];  // [step][register]
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int pair = 8 * i + j;
      a[j / 4][j % 4] = decode_pair<Format, K::is_half>(word + pair / Bits::pairs * Bits::words,
                                                        pair % Bits::pairs);
      if constexpr (K::scales_weights) {
        std::uint32_t factor = scale[i * 2 + j % 2];
        if constexpr (K::layout.block_scales() == 2) {
          factor = j < 4 ? twice_half<0>(factor) : twice_half<1>(factor);
        }
        a[j / 4][j % 4] = ptx::multiply_pair<K::is_half>(a[j / 4][j % 4], factor);
      }
    }
#pragma unroll
    for (int t = 0; t < Eights; ++t) {
      if constexpr (K::scales_weights) {
        multiply<K::is_half>(sums[i][t], a[0], b[t][0], b[t][1], sums[i][t]);
        multiply<K::is_half>(sums[i][t], a[1], b[t][2], b[t][3], sums[i][t]);
      } else {
        constexpr float zero[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        float first[4], both[4];
        multiply<K::is_half>(first, a[0], b[t][0], b[t][1], zero);
        multiply<K::is_half>(both, a[1], b[t][2], b[t][3], first);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sums[i][t][j] = fmaf(both[j], float_of(scale[2 * i + j / 2]), sums[i][t][j]);
        }
      }
    }
  }
}

// A lane's words of 32 columns of a tile.
template <class K>
__device__ __forceinline__ void read_words(std::uint32_t (&word)[K::Format::bits],
                                           std::uint32_t block, int lane) {
  constexpr int words = K::Format::bits;
#pragma unroll
  for (int plane = 0; plane < words / 4; ++plane) {
    const uint4 v = read_shared<uint4>(block + plane * 512 + lane * 16);
    word[4 * plane] = v.x, word[4 * plane + 1] = v.y;
    word[4 * plane + 2] = v.z, word[4 * plane + 3] = v.w;
  }
  if constexpr (words % 4 == 2) {
    const uint2 v = read_shared<uint2>(block + words / 4 * 512 + lane * 8);
    word[words - 2] = v.x, word[words - 1] = v.y;
  }
}

// Adds the products of a turn with the first tokens: where its tiles are and its tokens, and room
// for its scales.
template <class K, int Eights = K::tokens / 8>
__device__ __forceinline__ void multiply_turn(WarpSums<K>& sums, std::uint32_t tiles,
                                              std::uint32_t x, std::uint32_t floats, int lane) {
  constexpr int tile_bytes = K::tile_bytes, scale_bytes = DecodeShape::scale_bytes;
  const std::uint32_t chunk = x + token_chunk(lane);
  const std::uint32_t own_floats = floats + lane / 4 * DecodeShape::scale_stride;
#pragma unroll
  for (int block = 0; block < DecodeLayout::tile_blocks; ++block) {
    std::uint32_t word[K::warp_tiles][K::Format::bits], b[K::tokens / 8][4];
#pragma unroll
    for (int i = 0; i < K::warp_tiles; ++i) {
      read_words<K>(word[i], tiles + i * tile_bytes + block * K::layout.block_bytes(), lane);
    }
    read_tokens<K, Eights>(b, chunk, block);
    if (block == 0) {
#pragma unroll
      for (int i = 0; i < K::warp_tiles; ++i) {
        widen_scales<K>(tiles + i * tile_bytes, floats + i * scale_bytes, lane);
      }
      __syncwarp();  // the scales are there
    }
    if constexpr (K::scales_x) scale_tokens<K, Eights>(b);
#pragma unroll
    for (int i = 0; i < K::warp_tiles; ++i) {
      multiply_block<K, Eights>(sums[i], word[i], b, own_floats + i * scale_bytes + block * 16);
    }
  }
}

// Writes the sums of eight tokens and of a tile to where its sums of them are to lie.
template <class K>
__device__ __forceinline__ void put_sums(std::uint32_t to, const float (&sums)[2][K::tokens / 8][4],
                                         int eight, int lane) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int token = lane % 4 * 2 + j % 2, row = i * 16 + j / 2 * 8 + lane / 4;
      write_shared(to + token * DecodeShape::sum_stride + row * 4, sums[i][eight][j]);
    }
  }
}

}  // namespace mxkern::kernels::few
