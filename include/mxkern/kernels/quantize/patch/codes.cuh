// mxkern/kernels/quantize/patch/codes.cuh: the codes of a patch of 8 x 8 elements, and of its
// transpose.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize/octet.cuh"

namespace mxkern::kernels {

inline constexpr int patch_extent = 8;

// The codes of a row of a patch, or of a column: codes of 4 bits packed in the first word, others a
// byte each.
struct PatchCodes {
  std::uint32_t word[2];
};

// Four words of four bytes, turned.
__device__ __forceinline__ void turn_bytes(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c,
                                           std::uint32_t& d) {
  const std::uint32_t ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
  const std::uint32_t cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
  a = __byte_perm(ab_low, cd_low, 0x5410);
  b = __byte_perm(ab_low, cd_low, 0x7632);
  c = __byte_perm(ab_high, cd_high, 0x5410);
  d = __byte_perm(ab_high, cd_high, 0x7632);
}

// The codes of rows become those of columns.
template <int Bits>
__device__ __forceinline__ void turn_patch(PatchCodes (&codes)[patch_extent]) {
  if constexpr (Bits == 4) {
    std::uint32_t even[4], odd[4];  // columns, two rows a byte
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t upper = codes[2 * i].word[0], lower = codes[2 * i + 1].word[0];
      even[i] = (upper & 0x0F0F0F0Fu) | (lower << 4 & 0xF0F0F0F0u);
      odd[i] = (upper >> 4 & 0x0F0F0F0Fu) | (lower & 0xF0F0F0F0u);
    }
    turn_bytes(even[0], even[1], even[2], even[3]);
    turn_bytes(odd[0], odd[1], odd[2], odd[3]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      codes[2 * i].word[0] = even[i];
      codes[2 * i + 1].word[0] = odd[i];
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        turn_bytes(codes[i].word[k], codes[i + 1].word[k], codes[i + 2].word[k],
                   codes[i + 3].word[k]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t corner = codes[i].word[1];
      codes[i].word[1] = codes[i + 4].word[0];
      codes[i + 4].word[0] = corner;
    }
  }
}

// As they lie in memory.
template <int Bits>
__device__ __forceinline__ Octet packed(const PatchCodes& codes) {
  if constexpr (Bits == 4) return codes.word[0];
  if constexpr (Bits == 8) return codes.word[0] | static_cast<Octet>(codes.word[1]) << 32;
  return ptx::squeeze_sixes(codes.word[0]) | static_cast<Octet>(ptx::squeeze_sixes(codes.word[1]))
                                                 << 24;
}

template <int Bits>
__device__ __forceinline__ PatchCodes unpacked(Octet octet) {
  const auto low = static_cast<std::uint32_t>(octet);
  if constexpr (Bits == 4) return {{low, 0}};
  if constexpr (Bits == 8) return {{low, static_cast<std::uint32_t>(octet >> 32)}};
  return {{ptx::spread_sixes(low & 0xFFFFFFu),
           ptx::spread_sixes(static_cast<std::uint32_t>(octet >> 24) & 0xFFFFFFu)}};
}

// Encodes eight values, products with octet_scale where they are rounded to nearest. `signs`: those
// of codes of 4 bits that are rounded to nearest, in place.
template <class S, Rounding R>
__device__ __forceinline__ PatchCodes encode_patch_row(float (&scaled)[8], bool saturate,
                                                       std::uint32_t signs, const Philox4& words) {
  using Format = typename S::Format;
  if constexpr (R == Rounding::stochastic && is_fp6<Format>) {
    std::uint32_t sum[8];
    ptx::add_fractions<Format>(scaled, words, sum);
    return {{ptx::pack_bytes<Format>(sum, saturate), ptx::pack_bytes<Format>(sum + 4, saturate)}};
  } else if constexpr (R == Rounding::stochastic) {
    return unpacked<Format::bits>(encode_stochastic_octet<Format>(scaled, words, saturate));
  } else {
    if (saturate) saturate_octet<Format>(scaled);
#if MXKERN_HAS_CVT_E2M1
    return unpacked<Format::bits>(encode_octet<Format>(scaled));
#else
    if constexpr (is_fp4<Format>) return {{ptx::encode_e2m1_magnitudes(scaled) | signs, 0}};
#if MXKERN_HAS_CVT_E4M3
    if constexpr (is_fp6<Format>) {
      return {{ptx::encode_six_bytes<Format>(scaled), ptx::encode_six_bytes<Format>(scaled + 4)}};
    }
#endif
    return unpacked<Format::bits>(encode_octet<Format>(scaled));
#endif
  }
}

}  // namespace mxkern::kernels
