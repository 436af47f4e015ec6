// mxkern/kernels/quantize/patch/elements.cuh: a patch of 16-bit elements in registers, its amax,
// and its transform.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize/patch/tile.cuh"
#include "mxkern/kernels/quantize/columns.cuh"
#include "mxkern/numerics/hadamard.h"

namespace mxkern::kernels {

template <class Element>
struct PatchElements {
  using T = Element;
  RawOctet<T> raw[patch_extent];

  // Keeps the compiler from holding on to what it has made of the elements before this point.
  __device__ __forceinline__ void stay() {
#pragma unroll
    for (int i = 0; i < patch_extent; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) asm volatile("" : "+r"(raw[i].word[k]));
    }
  }

  // Of rows, and of pairs of columns.
  __device__ __forceinline__ void find_amax(PackedAmax<T> (&rows)[2][4],
                                            PackedAmax<T> (&pairs)[4]) const {
#pragma unroll
    for (int i = 0; i < patch_extent; i += 2) {
      std::uint32_t upper[4], lower[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        upper[k] = magnitudes_of<T>(raw[i].word[k]);
        lower[k] = magnitudes_of<T>(raw[i + 1].word[k]);
        pairs[k].bits = i == 0 ? __vmaxu2(upper[k], lower[k])
                               : __vimax3_u16x2(pairs[k].bits, upper[k], lower[k]);
      }
      rows[i / 4][i % 4] = {__vmaxu2(__vimax3_u16x2(upper[0], upper[1], upper[2]), upper[3])};
      rows[i / 4][i % 4 + 1] = {__vmaxu2(__vimax3_u16x2(lower[0], lower[1], lower[2]), lower[3])};
    }
  }

  // x := (x * sign) H / sqrt(size) down the columns, which two or four lanes share. Between lanes,
  // a + b and a - b are fused multiply-adds with factors of one.
  // `signs` are the words that flip rows. `Whole`: without the factor 1 / sqrt(size).
  template <bool Whole>
  __device__ __forceinline__ void transform(int size, int block, const std::uint32_t* signs) {
    const int position = patch_down() % (size / patch_extent);
    const float norm = hadamard_norm(size);
    float sign[patch_extent];
#pragma unroll
    for (int i = 0; i < patch_extent; ++i) {
      sign[i] = signs[position * patch_extent + i] != 0 ? -1.0f : 1.0f;
    }
    const float first_side = position % 2 != 0 ? -1.0f : 1.0f;
    const float second_side = position / 2 != 0 ? -1.0f : 1.0f;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float v[2][patch_extent];
#pragma unroll
      for (int i = 0; i < patch_extent; i += 2) {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const auto element = [&](int row) {
            const float2 both = unpack_pair<T>(raw[row].word[k]);
            return side == 0 ? both.x : both.y;
          };
          const float upper = __fmul_rn(element(i), sign[i]), lower = element(i + 1);
          v[side][i] = __fmaf_rn(lower, sign[i + 1], upper);
          v[side][i + 1] = __fmaf_rn(lower, -sign[i + 1], upper);
        }
      }
      hadamard_butterflies<2>(v[0]);
      hadamard_butterflies<2>(v[1]);
#pragma unroll
      for (int i = 0; i < patch_extent; ++i) {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          float& own = v[side][i];
          own = __fmaf_rn(own, first_side, __shfl_xor_sync(full_warp, own, 4));
          if (block == 32 && size == 32) {
            own = __fmaf_rn(own, second_side, __shfl_xor_sync(full_warp, own, 8));
          }
          if (!Whole) own = __fmul_rn(own, norm);
        }
        raw[i].word[k] = pack_pair<T>(v[0][i], v[1][i]);
      }
    }
  }

  // Codes of 4 bits of the columns of bfloat16 under powers of two, two columns at a time.
  template <bool Rare>
  __device__ __forceinline__ void columns_in_pairs(const float (&multipliers)[patch_extent],
                                                   PatchCodes (&codes)[patch_extent]) const {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      std::uint32_t word[patch_extent];
#pragma unroll
      for (int i = 0; i < patch_extent; ++i) word[i] = raw[i].word[pair];
      const std::uint32_t both =
          __byte_perm(bits_of(multipliers[2 * pair]), bits_of(multipliers[2 * pair + 1]), 0x7632);
      const auto factors = *reinterpret_cast<const __nv_bfloat162*>(&both);
      const std::uint32_t half[2] = {encode_four_pairs<Rare>(word, factors),
                                     encode_four_pairs<Rare>(word + 4, factors)};
      codes[2 * pair].word[0] = __byte_perm(half[0], half[1], 0x5410);
      codes[2 * pair + 1].word[0] = __byte_perm(half[0], half[1], 0x7632);
    }
  }
};

}  // namespace mxkern::kernels
