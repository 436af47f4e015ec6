// mxkern/numerics/codec_stochastic.cuh: eight elements at a time, rounded stochastically. The bits
// that encode_stochastic_lanes gives, one by one.
#pragma once

#include <cstdint>

#include "mxkern/numerics/codec_ptx.cuh"

namespace mxkern {

namespace ptx {

// With all 32 bits of every fraction.
template <class Format>
__device__ __forceinline__ Octet encode_whole_fractions(const float (&v)[8],
                                                        const std::uint32_t (&random)[8]) {
  constexpr std::uint32_t dropped = codec::dropped_bits<Format>;
  constexpr std::uint32_t smallest = Format::min_exponent + float32::bias;
  std::uint32_t codes[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t bits = bits_of(v[i]);
    const std::uint32_t magnitude = min(bits & float32::magnitude_mask, bits_of(Format::max_value));
    const std::uint32_t field = magnitude >> float32::mantissa_bits;
    // A float32 subnormal gets an implicit one that it has not; it is shifted out all the same.
    const std::uint32_t significand =
        (magnitude & float32::mantissa_mask) | 1u << float32::mantissa_bits;
    const std::uint32_t power = max(field, smallest);
    const std::uint32_t below = min(power - field + dropped, 63u);
    // Whole last places in the upper word, their fraction in the lower: the random word carries.
    const std::uint64_t places = static_cast<std::uint64_t>(significand) << 32 >> below;
    const auto rounded = static_cast<std::uint32_t>((places + random[i]) >> 32);
    const std::uint32_t code = rounded + ((power - smallest) << Format::mantissa_bits);
    codes[i] = codec::with_sign<Format>(code, bits);
  }
  Octet octet = 0;
  if constexpr (Format::bits == 6) {
#pragma unroll
    for (int i = 0; i < 8; ++i) octet |= static_cast<Octet>(codes[i]) << (Format::bits * i);
  } else {
    // Words are filled by multiplication and addition, which run beside the logic operations.
    constexpr int in_word = 32 / Format::bits;
#pragma unroll
    for (int i = 8; i-- > 0;) {
      if (i % in_word == in_word - 1) octet <<= 32;
      const auto low = static_cast<std::uint32_t>(octet);
      const std::uint32_t next = (i % in_word == in_word - 1 ? 0u : low << Format::bits) + codes[i];
      octet = (octet & 0xFFFFFFFF00000000u) | next;
    }
  }
  return octet;
}

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

// Sign and code of each value, from bit `dropped_bits` on, with what is left of fractions below.
// Whether they are right: otherwise whole fractions have to be looked at.
template <class Format>
__device__ __forceinline__ bool add_fractions(const float (&v)[8], const std::uint32_t (&random)[8],
                                              std::uint32_t (&sum)[8]) {
  // A carry of the random word into the last place counts the code up. What float32 has no bits for
  // is cut off.
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    sum[i] = bits_of(__fmul_rz(v[i], to_code_bits<Format>)) +
             (random[i] >> (32 - codec::dropped_bits<Format>));
  }
  // Only where all bits of a fraction are ones can bits that were cut off make a carry. Sixteen of
  // them tell: otherwise there is none, and every 8192nd octet is encoded the long way.
  std::uint32_t ones = 0;
#pragma unroll
  for (int i = 0; i < 8; i += 2) ones = __vimax3_u16x2(ones, sum[i], sum[i + 1]);
  return (~ones & 0xFFFFu) != 0;
}

}  // namespace ptx

// encode_stochastic_lanes for eight values, packed. None of them is NaN; none is beyond the
// format's largest value unless `saturate`.
template <class Format>
__device__ __forceinline__ Octet encode_stochastic_octet(const float (&v)[8],
                                                         const std::uint32_t (&random)[8],
                                                         bool saturate) {
  std::uint32_t sum[8];
  if (!ptx::add_fractions<Format>(v, random, sum)) {
    return ptx::encode_whole_fractions<Format>(v, random);
  }
  if constexpr (Format::bits == 4) {
    return ptx::pack_nibbles<Format>(sum, saturate);
  } else {
    const std::uint32_t four[2] = {ptx::pack_bytes<Format>(sum, saturate),
                                   ptx::pack_bytes<Format>(sum + 4, saturate)};
    if constexpr (Format::bits == 8) return four[0] | static_cast<Octet>(four[1]) << 32;
    return ptx::squeeze_sixes(four[0]) | static_cast<Octet>(ptx::squeeze_sixes(four[1])) << 24;
  }
}

}  // namespace mxkern
