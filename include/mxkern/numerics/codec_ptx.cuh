// mxkern/numerics/codec_ptx.cuh: eight elements at a time, packed, with conversion instructions.
// Every function here gives the bits that encode_lanes and decode_lanes give, one by one.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "mxkern/numerics/codec.h"

namespace mxkern {

// Eight packed codes: the low 8 * Format::bits bits.
using Octet = std::uint64_t;

namespace ptx {

#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM120_ALL)
#define MXKERN_HAS_CVT_E2M1 1
#else
#define MXKERN_HAS_CVT_E2M1 0
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define MXKERN_HAS_CVT_E4M3 1
#else
#define MXKERN_HAS_CVT_E4M3 0
#endif

// Two values to two codes, `low` in the low byte; saturating.
template <class Format>
__device__ __forceinline__ std::uint32_t convert_pair(float low, float high) {
  static_assert(is_fp8<Format>);
  std::uint16_t pair;
  if constexpr (Format::mantissa_bits == 3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

template <class Format>
__device__ __forceinline__ std::uint32_t convert_quad(const float* v) {
  return convert_pair<Format>(v[0], v[1]) | convert_pair<Format>(v[2], v[3]) << 16;
}

// Two 8-bit codes to two halves, exact.
template <class Format>
__device__ __forceinline__ __half2 widen_to_halves(std::uint32_t pair) {
  static_assert(is_fp8<Format>);
  std::uint32_t halves;
  const auto codes = static_cast<std::uint16_t>(pair);
  if constexpr (Format::mantissa_bits == 3) {
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(codes));
  } else {
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(codes));
  }
  return *reinterpret_cast<const __half2*>(&halves);
}

template <class Format>
__device__ __forceinline__ float2 widen_pair(std::uint32_t pair) {
  return __half22float2(widen_to_halves<Format>(pair));
}

__device__ __forceinline__ std::uint32_t join_pair(std::uint32_t low, std::uint32_t high) {
  return low | high << 16;
}

// Bytes 0 of four words, in order.
__device__ __forceinline__ std::uint32_t gather_low_bytes(std::uint32_t a, std::uint32_t b,
                                                          std::uint32_t c, std::uint32_t d) {
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

// Bytes 3 of four words, in order.
__device__ __forceinline__ std::uint32_t gather_high_bytes(std::uint32_t a, std::uint32_t b,
                                                           std::uint32_t c, std::uint32_t d) {
  return __byte_perm(__byte_perm(a, b, 0x0073), __byte_perm(c, d, 0x0073), 0x5410);
}

// Four 6-bit codes, a byte each, to 24 bits; and back. A dot product of bytes joins two codes.
__device__ __forceinline__ std::uint32_t squeeze_sixes(std::uint32_t bytes) {
  return __dp4a(bytes, 0x00004001u, 0u) + (__dp4a(bytes, 0x40010000u, 0u) << 12);
}

__device__ __forceinline__ std::uint32_t spread_sixes(std::uint32_t packed) {
  const std::uint32_t twelves = (packed & 0xFFFu) | (packed & 0xFFF000u) << 4;
  return (twelves & 0x003F003Fu) | (twelves << 2 & 0x3F003F00u);
}

// A six-bit format rounds like the eight-bit format of the same mantissa width whose exponents lie
// lower by the difference of the biases: there its codes are the same low bits.
template <class Format>
using Wider = std::conditional_t<Format::mantissa_bits == 3, E4M3, E5M2>;

template <class Format>
inline constexpr float to_wider = float32::exp2(Wider<Format>::min_exponent - Format::min_exponent);

// Four codes, a byte each.
template <class Format>
__device__ __forceinline__ std::uint32_t encode_six_bytes(const float* v) {
  static_assert(is_fp6<Format>);
  const std::uint32_t bytes = convert_quad<Wider<Format>>(v);
  return (bytes & 0x1F1F1F1Fu) | (bytes >> 2 & 0x20202020u);
}

template <class Format>
__device__ __forceinline__ std::uint32_t encode_sixes(const float* v) {
  return squeeze_sixes(encode_six_bytes<Format>(v));
}

// E2M1's codes 0..7 stand for 0, .5, 1, 1.5, 2, 3, 4, 6. The code as a function of the magnitude is
// the lowest of three lines, and a fused multiply-add onto 2^23 rounds each line to an integer,
// ties to even, once: the smallest of the three sums holds the code in its low bits. Below 7 that
// is right without saturation. The sums are positive, and ordered as their bits are.
__device__ __forceinline__ std::uint32_t encode_e2m1(float value) {
  constexpr float ones = 0x1p23f;
  const float magnitude = fabsf(value);
  const float low = fmaf(magnitude, 2.0f, ones);
  const float middle = fmaf(magnitude, 1.0f, ones + 2.0f);
  const float high = fmaf(magnitude, 0.5f, ones + 4.0f);
  return __vimin3_u32(bits_of(low), bits_of(middle), bits_of(high));
}

// Eight magnitudes, packed. The upper bits of every sum are those of 2^23; shifted into place they
// add up to a constant.
inline constexpr std::uint32_t e2m1_sum_start = 0u - bits_of(0x1p23f) * 0x11111111u;

__device__ __forceinline__ std::uint32_t encode_e2m1_magnitudes(const float (&v)[8]) {
  std::uint32_t magnitudes = e2m1_sum_start;
#pragma unroll
  for (int i = 0; i < 8; ++i) magnitudes += encode_e2m1(v[i]) << (4 * i);
  return magnitudes;
}

// The signs of eight packed codes, from bytes that begin with them: of elements 0, 2, 4, 6 and of
// 1, 3, 5, 7.
__device__ __forceinline__ std::uint32_t place_e2m1_signs(std::uint32_t even, std::uint32_t odd) {
  return (even >> 4 & 0x08080808u) | (odd & 0x80808080u);
}

// The same from eight 16-bit elements, two a word.
__device__ __forceinline__ std::uint32_t e2m1_signs(const std::uint32_t (&word)[4]) {
  const std::uint32_t first = __byte_perm(word[0], word[1], 0x7351);
  const std::uint32_t second = __byte_perm(word[2], word[3], 0x7351);
  return place_e2m1_signs(__byte_perm(first, second, 0x5410), __byte_perm(first, second, 0x7632));
}

// Eight codes from magnitudes of pairs, as the lines of bfloat16 or of halves leave them, and the
// words with the signs.
__device__ __forceinline__ std::uint32_t pack_e2m1_pairs(const std::uint32_t (&pair)[4],
                                                         const std::uint32_t (&word)[4]) {
  std::uint32_t part[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    // A byte each: both even elements, both odd ones.
    const std::uint32_t codes = __byte_perm(pair[2 * i], pair[2 * i + 1], 0x6240);
    const std::uint32_t signs = __byte_perm(word[2 * i], word[2 * i + 1], 0x7351);
    const std::uint32_t four = codes | (signs >> 4 & 0x08080808u);
    part[i] = four + (four >> 12);
  }
  return __byte_perm(part[0], part[1], 0x5410);
}

__device__ __forceinline__ std::uint32_t encode_e2m1_octet(const float (&v)[8]) {
#if MXKERN_HAS_CVT_E2M1
  std::uint32_t word;
  asm("{\n"
      ".reg .b8 b0, b1, b2, b3;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b0, %2, %1;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b1, %4, %3;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b2, %6, %5;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b3, %8, %7;\n"
      "mov.b32 %0, {b0, b1, b2, b3};\n"
      "}\n"
      : "=r"(word)
      : "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]));
  return word;
#else
  const std::uint32_t even =
      gather_high_bytes(bits_of(v[0]), bits_of(v[2]), bits_of(v[4]), bits_of(v[6]));
  const std::uint32_t odd =
      gather_high_bytes(bits_of(v[1]), bits_of(v[3]), bits_of(v[5]), bits_of(v[7]));
  return encode_e2m1_magnitudes(v) | place_e2m1_signs(even, odd);
#endif
}

// Fixed point: 1.5 * 2^23 has a last place of one, so the sum ends in the rounded integer.
template <class Format>
__device__ __forceinline__ std::uint32_t encode_integer(float value) {
  return bits_of(fmaf(value, 1.0f / Format::min_subnormal, 0x1.8p23f));
}

// E2M1 moved into the top bits of a float32 is off by 2^126, subnormals included.
__device__ __forceinline__ float decode_e2m1(std::uint32_t code) {
  return float_of((code & 8u) << 28 | (code & 7u) << 22) * 0x1p126f;
}

}  // namespace ptx

// Packs eight codes, one a word.
template <class Format>
__device__ __forceinline__ Octet pack_octet(const std::uint32_t (&codes)[8]) {
  Octet octet = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) octet |= static_cast<Octet>(codes[i]) << (Format::bits * i);
  return octet;
}

// Whether encode_octet needs saturate_octet for values of which `largest` is the largest magnitude.
// The lines of E2M1 end at the largest code by themselves up to 7, the conversions to 8 bits
// always.
template <class Format>
__device__ __forceinline__ bool needs_saturation(float largest) {
  if constexpr (is_fp8<Format>) return false;
  if constexpr (is_fp4<Format>) return largest >= 7.0f;
  return largest > Format::max_value;
}

// What encode_octet wants its values multiplied with beforehand, for free in a multiplication that
// is there anyway; a power of two.
template <class Format>
inline constexpr float octet_scale =
    is_fp6<Format>&& MXKERN_HAS_CVT_E4M3 ? ptx::to_wider<Format> : 1.0f;

// encode_lanes for eight values, packed, given their products with octet_scale. None of them is
// NaN, and none needs saturation.
template <class Format>
__device__ __forceinline__ Octet encode_octet(const float (&v)[8]) {
  if constexpr (Format::is_integer) {
    std::uint32_t word[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) word[i] = ptx::encode_integer<Format>(v[i]);
    return ptx::gather_low_bytes(word[0], word[1], word[2], word[3]) |
           static_cast<Octet>(ptx::gather_low_bytes(word[4], word[5], word[6], word[7])) << 32;
  } else if constexpr (is_fp4<Format>) {
    return ptx::encode_e2m1_octet(v);
  } else if constexpr (is_fp8<Format> && MXKERN_HAS_CVT_E4M3) {
    return ptx::convert_quad<Format>(v) | static_cast<Octet>(ptx::convert_quad<Format>(v + 4))
                                              << 32;
  } else if constexpr (is_fp6<Format> && MXKERN_HAS_CVT_E4M3) {
    return ptx::encode_sixes<Format>(v) | static_cast<Octet>(ptx::encode_sixes<Format>(v + 4))
                                              << 24;
  } else {
    std::uint32_t codes[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) codes[i] = encode_lanes<Format>(v[i]);
    return pack_octet<Format>(codes);
  }
}

// Two bfloat16 magnitudes. A multiplication by zero and an addition: logic operations are what the
// quantizers run out of first.
__device__ __forceinline__ std::uint32_t bfloat16_magnitudes(std::uint32_t word) {
  const __nv_bfloat162 magnitudes = __habs2(*reinterpret_cast<const __nv_bfloat162*>(&word));
  return *reinterpret_cast<const std::uint32_t*>(&magnitudes);
}

// Two bfloat16 values times powers of two, as E2M1 magnitudes in bits 0 to 2 of each half (other
// bits of the low bytes are 0). With 8 significant bits everything up to the rounding is exact in
// bfloat16. The lines are those of ptx::encode_e2m1, onto 2^7.
template <bool Saturate>
__device__ __forceinline__ std::uint32_t encode_bfloat16_pair(std::uint32_t word,
                                                              __nv_bfloat162 multiplier) {
  // Not bfloat16_magnitudes, as the amax has them: the compiler would keep those in registers.
  const std::uint32_t bits = word & 0x7FFF7FFFu;
  __nv_bfloat162 magnitude = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&bits), multiplier);
  if (Saturate) magnitude = __hmin2(magnitude, __float2bfloat162_rn(E2M1::max_value));
  const auto line = [&](float slope, float start) {
    const __nv_bfloat162 sum =
        __hfma2(magnitude, __float2bfloat162_rn(slope), __float2bfloat162_rn(start));
    return *reinterpret_cast<const std::uint32_t*>(&sum);
  };
  return __vimin3_u16x2(line(2.0f, 128.0f), line(1.0f, 130.0f), line(0.5f, 132.0f));
}

// Eight E2M1 codes of bfloat16 values times a power of two, straight from the four words that hold
// them.
template <bool Saturate>
__device__ __forceinline__ Octet encode_bfloat16_octet(const std::uint32_t (&word)[4],
                                                       float multiplier) {
  const __nv_bfloat162 scale = __float2bfloat162_rn(multiplier);
  std::uint32_t codes[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) codes[i] = encode_bfloat16_pair<Saturate>(word[i], scale);
  return ptx::pack_e2m1_pairs(codes, word);
}

// Clamps to the largest value. Few blocks saturate under most scale rules: one question a block, or
// none, instead of two operations an element.
template <class Format>
__device__ __forceinline__ void saturate_octet(float (&v)[8]) {
  constexpr float limit = Format::max_value * octet_scale<Format>;
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = fminf(fmaxf(v[i], -limit), limit);
}

// decode_lanes for eight packed codes. A NaN code gives a NaN of any bits: see has_nan_code.
template <class Format>
__device__ __forceinline__ void decode_octet(Octet octet, float (&v)[8]) {
  if constexpr (is_fp4<Format>) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      v[i] = ptx::decode_e2m1(static_cast<std::uint32_t>(octet) >> (4 * i) & 0xFu);
    }
  } else if constexpr (MXKERN_HAS_CVT_E4M3 && (is_fp8<Format> || is_fp6<Format>)) {
    std::uint32_t words[2];
    if constexpr (is_fp8<Format>) {
      words[0] = static_cast<std::uint32_t>(octet);
      words[1] = static_cast<std::uint32_t>(octet >> 32);
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t sixes =
            ptx::spread_sixes(static_cast<std::uint32_t>(octet >> (24 * i)) & 0xFFFFFFu);
        words[i] = (sixes & 0x1F1F1F1Fu) | (sixes & 0x20202020u) << 2;
      }
    }
    using Wide = std::conditional_t<is_fp8<Format>, Format, ptx::Wider<Format>>;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = ptx::widen_pair<Wide>(words[i / 2] >> (16 * (i % 2)));
      v[2 * i] = pair.x;
      v[2 * i + 1] = pair.y;
    }
    if constexpr (is_fp6<Format>) {
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] *= 1.0f / ptx::to_wider<Format>;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      v[i] = decode_lanes<Format>(static_cast<std::uint32_t>(octet >> (Format::bits * i)) &
                                  ((1u << Format::bits) - 1));
    }
  }
}

// The values of eight codes of 4 or 6 bits as bfloat16, two a word; exact.
template <class Format>
__device__ __forceinline__ void decode_bfloat16_octet(Octet octet, std::uint32_t (&word)[4]) {
  if constexpr (is_fp4<Format>) {
    // The upper and the lower bytes of 0, .5, 1, 1.5, 2, 3, 4, 6, picked by the magnitudes of four
    // codes at a time; the signs of even codes come from the codes moved up to them.
    const auto codes = static_cast<std::uint32_t>(octet);
    const std::uint32_t moved = codes << 4;
    const std::uint32_t magnitudes = codes & 0x77777777u;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t picked = magnitudes >> (16 * i);
      const std::uint32_t upper = __byte_perm(0x3F3F3F00u, 0x40404040u, picked);
      const std::uint32_t lower = __byte_perm(0xC0800000u, 0xC0804000u, picked);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const std::uint32_t pair = __byte_perm(lower, upper, k == 0 ? 0x5140 : 0x7362);
        const int byte = 2 * i + k;
        const std::uint32_t signs = __byte_perm(codes, moved, byte << 12 | (4 + byte) << 4);
        word[byte] = pair | (signs & 0x80008000u);
      }
    }
  } else {
    static_assert(is_fp6<Format>);
    const __half2 scale = __float2half2_rn(1.0f / ptx::to_wider<Format>);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t sixes =
          ptx::spread_sixes(static_cast<std::uint32_t>(octet >> (24 * i)) & 0xFFFFFFu);
      const std::uint32_t bytes = (sixes & 0x1F1F1F1Fu) | (sixes & 0x20202020u) << 2;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const __half2 halves = ptx::widen_to_halves<ptx::Wider<Format>>(bytes >> (16 * k));
        const float2 pair = __half22float2(__hmul2(halves, scale));
        const __nv_bfloat162 both = __floats2bfloat162_rn(pair.x, pair.y);
        word[2 * i + k] = *reinterpret_cast<const std::uint32_t*>(&both);
      }
    }
  }
}

// Whether one of eight codes is a NaN.
template <class Format>
__device__ __forceinline__ bool has_nan_code(Octet octet) {
  if constexpr (!Format::has_nan) return false;
  static_assert(!Format::has_nan || Format::bits == 8, "codes are bytes");
  // Adding what is missing from the first NaN code to 0x80 carries into bit 7 from there on.
  constexpr std::uint32_t first_nan =
      Format::max_code + (Format::specials == Specials::ieee ? 2u : 1u);
  constexpr std::uint32_t step = (0x80u - first_nan) * 0x01010101u;
  const auto low = (static_cast<std::uint32_t>(octet) & 0x7F7F7F7Fu) + step;
  const auto high = (static_cast<std::uint32_t>(octet >> 32) & 0x7F7F7F7Fu) + step;
  return ((low | high) & 0x80808080u) != 0;
}

// Eight times the code of a poisoned block.
template <class Format>
inline constexpr Octet poison_octet = Format::poison_code * 0x0101010101010101u;

}  // namespace mxkern
