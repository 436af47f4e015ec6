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

// How far the bits of a float32 move up, so that the code is the low end of the upper byte and the
// fraction of its last place begins at bit 23.
template <class Format>
inline constexpr int moved_up = 24 - codec::dropped_bits<Format>;

// What the upper byte then holds for the code 0: the exponent field counts from there.
template <class Format>
inline constexpr std::uint32_t upper_byte_base =
    (codec::smallest_normal_bits<Format> - (1u << float32::mantissa_bits)) << moved_up<Format> >>
    24;

// The bits of a magnitude, moved up. Below the smallest normal numbers the binade under them stands
// for all of them: there the last places are as wide as those of subnormals. What float32 has no
// bits for is cut off.
template <class Format>
__device__ __forceinline__ std::uint32_t places_of(float value, bool saturate) {
  constexpr float half = 0.5f * float_of(codec::smallest_normal_bits<Format>);
  float magnitude = fabsf(value);
  if (saturate) magnitude = fminf(magnitude, Format::max_value);
  return bits_of(fmaxf(magnitude, __fmaf_rz(magnitude, 0.5f, half))) << moved_up<Format>;
}

}  // namespace ptx

// encode_stochastic_lanes for eight values, packed. None of them is NaN; none is beyond the
// format's largest value unless `saturate`.
template <class Format>
__device__ __forceinline__ Octet encode_stochastic_octet(const float (&v)[8],
                                                         const std::uint32_t (&random)[8],
                                                         bool saturate) {
  // The fraction of a last place and the random word, from bit 23 down; a carry counts the code up.
  std::uint32_t sum[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) sum[i] = ptx::places_of<Format>(v[i], saturate) + (random[i] >> 8);
  // Only where all bits of that sum are ones can bits that were cut off make a carry. Sixteen of
  // them tell: otherwise there is none, and every 8192nd octet is encoded the long way.
  std::uint32_t ones = 0;
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    ones = __vimax3_u16x2(ones, __byte_perm(sum[i], sum[i + 1], 0x6521),
                          __byte_perm(sum[i + 2], sum[i + 3], 0x6521));
  }
  if ((ones & 0xFFFFu) == 0xFFFFu || ones >= 0xFFFF0000u) {
    return ptx::encode_whole_fractions<Format>(v, random);
  }
  constexpr int bits = Format::is_integer ? 7 : Format::bits - 1;
  constexpr std::uint32_t byte_mask = (1u << bits) - 1;
  constexpr std::uint32_t byte_base = ptx::upper_byte_base<Format> & byte_mask;
  static_assert(byte_base == 0 || byte_base == 1u << (bits - 1), "or subtraction is not inversion");
  constexpr std::uint32_t mask = byte_mask * 0x01010101u;
  constexpr std::uint32_t base = byte_base * 0x01010101u;
  if constexpr (Format::is_integer) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t magnitude = sum[i] & (mask & 0xFF000000u);
      sum[i] = v[i] < 0.0f ? 0u - magnitude : magnitude;
    }
    return ptx::gather_high_bytes(sum[0], sum[1], sum[2], sum[3]) |
           static_cast<Octet>(ptx::gather_high_bytes(sum[4], sum[5], sum[6], sum[7])) << 32;
  } else if constexpr (Format::bits == 4) {
    const auto magnitudes = [&](int first) {
      return (ptx::gather_high_bytes(sum[first], sum[first + 2], sum[first + 4], sum[first + 6]) ^
              base) &
             mask;
    };
    const auto signs = [&](int first) {
      return ptx::gather_high_bytes(bits_of(v[first]), bits_of(v[first + 2]), bits_of(v[first + 4]),
                                    bits_of(v[first + 6]));
    };
    return magnitudes(0) | magnitudes(1) << 4 | ptx::place_e2m1_signs(signs(0), signs(1));
  } else {
    std::uint32_t four[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t magnitudes =
          ptx::gather_high_bytes(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]);
      const std::uint32_t signs = ptx::gather_high_bytes(
          bits_of(v[4 * i]), bits_of(v[4 * i + 1]), bits_of(v[4 * i + 2]), bits_of(v[4 * i + 3]));
      constexpr std::uint32_t sign_mask = Format::sign_mask * 0x01010101u;
      four[i] = ((magnitudes ^ base) & mask) | (signs >> (8 - Format::bits) & sign_mask);
    }
    if constexpr (Format::bits == 8) {
      return four[0] | static_cast<Octet>(four[1]) << 32;
    } else {
      return ptx::squeeze_sixes(four[0]) | static_cast<Octet>(ptx::squeeze_sixes(four[1])) << 24;
    }
  }
}

}  // namespace mxkern
