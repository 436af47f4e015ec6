// mxkern/kernels/few_decode.cuh: reordered codes and scales to operands of mma, in registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/core/math.h"
#include "mxkern/kernels/few_parameters.h"
#include "mxkern/kernels/few_ptx.cuh"

namespace mxkern::kernels::few {

template <class T>
__device__ __forceinline__ T read_shared(std::uint32_t address);
template <>
__device__ __forceinline__ uint4 read_shared<uint4>(std::uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address));
  return v;
}
template <>
__device__ __forceinline__ uint2 read_shared<uint2>(std::uint32_t address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address));
  return v;
}

template <>
__device__ __forceinline__ std::uint32_t read_shared<std::uint32_t>(std::uint32_t address) {
  std::uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address));
  return v;
}

__device__ __forceinline__ void write_shared(std::uint32_t address, const uint4& v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}

__device__ __forceinline__ void write_shared(std::uint32_t address, float v) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory");
}

// The compiler is not to see through this: of the pairs that share it one would have a shift of its
// own then.
__device__ __forceinline__ std::uint32_t rotate_by_six(std::uint32_t word) {
  std::uint32_t turned;
  asm("shf.l.wrap.b32 %0, %1, %1, 6;" : "=r"(turned) : "r"(word));
  return turned;
}

// A pair of codes as two floats of 16 bits: 2^(bias - 127) times the values, half 2^(bias - 15),
// subnormal where they are. Integers: 64 times the values.
template <class Format, bool IsHalf>
__device__ __forceinline__ std::uint32_t decode_pair(const std::uint32_t* words, int pair) {
  using Bits = DecodeBits<Format>;
  if constexpr (Format::is_integer) {
    // The low seven bits as a mantissa over a power of two, less that power and the sign's 128.
    constexpr std::uint32_t base = IsHalf ? 0x64006400u : 0x43004300u;
    const std::uint32_t word = decode_layout::shifted(words[0], Bits::run(pair, 0).shift);
    const std::uint32_t low = (word & 0x007F007Fu) | base;
    const std::uint32_t high = (word & 0x00800080u) | base;
    std::uint32_t value;
    if constexpr (IsHalf) {
      asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(value) : "r"(low), "r"(high));
    } else {
      asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(value) : "r"(low), "r"(high));
    }
    return value;
  } else if constexpr (!IsHalf) {
    if constexpr (std::is_same_v<Format, E2M1>) {
      if (pair >= 2) return turned_pair(rotate_by_six(words[0]), pair);
    }
    return get_pair<Format>(words, pair);
  } else {
    std::uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < Bits::runs; ++i) {
      const BitRun run = Bits::run(pair, i);
      // Exponent and mantissa three places higher, the sign where it is.
      const std::uint32_t word = decode_layout::crossed<Format>(words[run.word], pair);
      const std::uint32_t payload = (run.mask & 0x7FFFu) << 3, sign = run.mask & 0x8000u;
      if (payload != 0) {
        bits |= decode_layout::shifted(word, run.shift + 3) & payload * 0x10001u;
      }
      if (sign != 0) bits |= decode_layout::shifted(word, run.shift) & sign * 0x10001u;
    }
    return bits;
  }
}

// What sums of products of decoded pairs lack.
template <class K>
MXKERN_HOST_DEVICE constexpr float sum_factor() {
  using Format = typename K::Format;
  constexpr float half = K::scales_weights || K::Scheme::has_tensor_scale ? 1.0f : 0.5f;
  if constexpr (Format::is_integer) {
    return half * Format::min_subnormal;
  } else if constexpr (K::is_half) {
    return half * float32::exp2(15 - Format::bias);
  } else {
    return K::scales_x ? half * float32::exp2(127 - Format::bias - K::x_exponent)
                       : float32::exp2(-K::weight_exponent);
  }
}

// The scale in byte `i` of a word; E8M0: twice the scale, of which none is subnormal.
template <class S>
__device__ __forceinline__ float scale_of(std::uint32_t word, int i) {
  if constexpr (S::has_tensor_scale) {
    const std::uint32_t bits = decode_layout::shifted(word, 20 - 8 * i) & 0x07F00000u;
    return float_of(bits) * 0x1p120f;
  } else {
    return float_of((__byte_perm(word, 0, 0x4440 + i) + 1) << 23);
  }
}

// Twice what decoded bfloat16 weights are to be multiplied with, for the scale in byte `i`.
template <class K>
__device__ __forceinline__ std::uint32_t multiplier_of(std::uint32_t word, int i) {
  using Format = typename K::Format;
  if constexpr (K::Scheme::has_tensor_scale) {
    const float scale = scale_of<typename K::Scheme>(word, i) *
                        float32::exp2(127 - Format::bias + K::weight_exponent);
    return __byte_perm(bits_of(scale), 0, 0x3232);
  } else {
    // In exponent fields; a byte that would carry beyond is in a row that is not ordinary.
    int offset = 0;
    if constexpr (!Format::is_integer) offset = 127 - Format::bias + K::weight_exponent;
    return ((word >> (8 * i) & 0xFFu) + static_cast<unsigned>(offset)) * 0x00800080u;
  }
}

__device__ __forceinline__ std::uint32_t multiply_pair(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

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

}  // namespace mxkern::kernels::few
