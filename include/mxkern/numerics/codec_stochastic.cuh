// mxkern/numerics/codec_stochastic.cuh: eight elements at a time, rounded stochastically. The bits
// that encode_stochastic_lanes gives, one by one.
#pragma once

#include <cstdint>

#include "mxkern/core/philox.h"
#include "mxkern/numerics/codec_ptx.cuh"
#include "mxkern/numerics/rounding.h"

namespace mxkern {

namespace ptx {

// What moves a format's smallest normal number to float32's: there the bits of a float32 are the
// code, subnormal or not, with its fraction below.
template <class Format>
inline constexpr float to_code_bits =
    float32::exp2(1 - float32::bias) / float32::exp2(Format::min_exponent);

// The bits of `mask` from `a`, the others from `b`.
__device__ __forceinline__ std::uint32_t select_bits(std::uint32_t mask, std::uint32_t a,
                                                     std::uint32_t b) {
  std::uint32_t selected;  // in one instruction, which the compiler makes two of
  asm("lop3.b32 %0, %1, %2, %3, 0xCA;" : "=r"(selected) : "r"(mask), "r"(a), "r"(b));
  return selected;
}

// Two halves that are a sign and a magnitude, the latter no more than that of `largest`. Instead of
// both they may be bfloat16 values, whose order is the same.
__device__ __forceinline__ std::uint32_t limit_halves(std::uint32_t halves, std::uint32_t largest) {
#if __CUDA_ARCH__ >= 860
  std::uint32_t limited;
  asm("min.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(limited) : "r"(halves), "r"(largest));
  return limited;
#else
  return select_bits(0x80008000u, halves, __vminu2(halves & 0x7FFF7FFFu, largest));
#endif
}

// The codes of two values, each at the upper end of a half, with what is left of their fractions.
// In `low` and `high` sign and code are where to_code_bits brings them.
template <class Format>
__device__ __forceinline__ std::uint32_t join_code_bits(std::uint32_t low, std::uint32_t high,
                                                        bool saturate) {
  constexpr int magnitude_bits = Format::is_integer ? 7 : Format::bits - 1;
  constexpr int below = codec::dropped_bits<Format> - 16;
  constexpr std::uint32_t largest = ((Format::max_code + 1u) << below) - 1;
  std::uint32_t halves = __byte_perm(low, high, 0x7632);
  if (saturate) halves = limit_halves(halves, largest * 0x10001u);
  return select_bits(0x80008000u, halves, halves << (15 - below - magnitude_bits));
}

// Eight codes of 4 bits.
template <class Format>
__device__ __forceinline__ Octet pack_nibbles(const std::uint32_t (&bits)[8], bool saturate) {
  std::uint32_t halves[4];  // elements i and i + 4
#pragma unroll
  for (int i = 0; i < 4; ++i) halves[i] = join_code_bits<Format>(bits[i], bits[i + 4], saturate);
  const std::uint32_t lower = select_bits(0xF000F000u, halves[1], halves[0] >> 4);
  const std::uint32_t upper = select_bits(0xF000F000u, halves[3], halves[2] >> 4);
  return __byte_perm(lower, upper, 0x7351);
}

// Four codes of 6 or 8 bits, a byte each.
template <class Format>
__device__ __forceinline__ std::uint32_t pack_bytes(const std::uint32_t* bits, bool saturate) {
  const std::uint32_t first = join_code_bits<Format>(bits[0], bits[1], saturate);
  const std::uint32_t second = join_code_bits<Format>(bits[2], bits[3], saturate);
  const std::uint32_t four = __byte_perm(first, second, 0x7531);
  if constexpr (Format::is_integer) {
    // Bytes with a sign and a magnitude; those that are negative become ~magnitude + 1, with no
    // carry from byte to byte.
    std::uint32_t negative;
    asm("prmt.b32 %0, %1, %2, 0xFDB9;" : "=r"(negative) : "r"(first), "r"(second));
    const std::uint32_t flipped = (four ^ negative) & 0x7F7F7F7Fu;
    const std::uint32_t sum = flipped + (negative & 0x01010101u);
    return sum ^ (negative & 0x80808080u);
  }
  return Format::bits == 6 ? four >> 2 & 0x3F3F3F3Fu : four;
}

// The random word of 16 bits in one half of a word, in the upper half, and half of its last place.
__device__ __forceinline__ std::uint32_t upper_word(std::uint32_t word, int half) {
  return __byte_perm(word, 0x8000u, half == 0 ? 0x1054 : 0x3254);
}

// Sign and code of a value, from bit `dropped_bits` on, with what is left of fractions below. A
// carry of the random word into the last place counts the code up. What float32 has no bits for is
// cut off: it lies below half of the word's last place, where nothing can carry.
template <class Format>
__device__ __forceinline__ std::uint32_t add_fraction(float v, std::uint32_t word, int half) {
  constexpr int dropped = codec::dropped_bits<Format>;
  return bits_of(__fmul_rz(v, to_code_bits<Format>)) + (upper_word(word, half) >> (32 - dropped));
}

// The same for eight adjacent elements.
template <class Format>
__device__ __forceinline__ void add_fractions(const float (&v)[8], const Philox4& words,
                                              std::uint32_t (&sum)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) sum[i] = add_fraction<Format>(v[i], words.lane[i / 2], i % 2);
}

}  // namespace ptx

// encode_stochastic_lanes for eight values, packed. None of them is NaN; none is beyond the
// format's largest value unless `saturate`.
template <class Format>
__device__ __forceinline__ Octet encode_stochastic_octet(const float (&v)[8], const Philox4& words,
                                                         bool saturate) {
  std::uint32_t sum[8];
  if constexpr (!is_ocp_float<Format> && !Format::is_integer) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      sum[i] = encode_stochastic_lanes<Format>(v[i], words.lane[i / 2] >> (16 * (i % 2)) & 0xFFFFu);
    }
    return pack_octet<Format>(sum);
  }
  ptx::add_fractions<Format>(v, words, sum);
  if constexpr (is_fp4<Format>) {
    return ptx::pack_nibbles<Format>(sum, saturate);
  } else {
    const std::uint32_t four[2] = {ptx::pack_bytes<Format>(sum, saturate),
                                   ptx::pack_bytes<Format>(sum + 4, saturate)};
    if constexpr (Format::bits == 8) return four[0] | static_cast<Octet>(four[1]) << 32;
    return ptx::squeeze_sixes(four[0]) | static_cast<Octet>(ptx::squeeze_sixes(four[1])) << 24;
  }
}

}  // namespace mxkern
