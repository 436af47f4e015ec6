// cpu/kernels/decode_halves.h: codes to bfloat16 without a detour through float32.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/bfloat16_pairs.h"
#include "cpu/kernels/halves.h"
#include "mxkern/numerics/codec.h"
#include "mxkern/numerics/scheme.h"

#if defined(__AVX2__)

namespace mxkern::cpu {
namespace {

inline constexpr int bfloat16_nan = float32::nan_bits >> 16;

#if !defined(__AVX512F__)
[[gnu::always_inline]] inline __m256i all_words(int value) { return __m256i(all_halves(value)); }

// The magnitudes of 4-bit codes.
template <class Format>
struct MagnitudeTable {
  alignas(32) float values[8];
  constexpr MagnitudeTable() : values() {
    for (int i = 0; i < 8; ++i) values[i] = decode<Format>(static_cast<std::uint8_t>(i));
  }
};

// Decodes two blocks of 16 codes of four bits, by a table of the values that each block has.
template <class Format>
[[gnu::always_inline]] inline void decode_two_blocks(const std::uint8_t* codes, const float* first,
                                                     const float* second, bfloat16* out) {
  static_assert(Format::bits == 4 && !Format::is_integer);
  static constexpr MagnitudeTable<Format> table;
  const auto magnitudes = load_vector<FloatLanes>(table.values);
  const auto rounded = [&](int block) __attribute__((always_inline)) {
    const BitLanes bits = bits_of(with_one_nan(magnitudes * first[block] * second[block]));
    return __m256i((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
  };
  // Each half of a register is about one block: eight values, then their negatives; a NaN has none.
  const __m256i values =
      _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded(0), rounded(1)), 0b11011000);
  const __m256i is_nan = _mm256_cmpeq_epi16(values, all_words(bfloat16_nan));
  const __m256i negatives =
      _mm256_xor_si256(values, _mm256_andnot_si256(is_nan, all_words(0x8000)));
  const __m256i low_bytes = _mm256_packus_epi16(_mm256_and_si256(values, all_words(0xFF)),
                                                _mm256_and_si256(negatives, all_words(0xFF)));
  const __m256i high_bytes =
      _mm256_packus_epi16(_mm256_srli_epi16(values, 8), _mm256_srli_epi16(negatives, 8));

  const __m256i pairs = _mm256_cvtepu8_epi16(load_vector<__m128i>(codes));
  const __m256i index =
      _mm256_and_si256(_mm256_or_si256(pairs, _mm256_slli_epi16(pairs, 4)), all_words(0x0F0F));
  const __m256i low = _mm256_shuffle_epi8(low_bytes, index);
  const __m256i high = _mm256_shuffle_epi8(high_bytes, index);
  const __m256i front = _mm256_unpacklo_epi8(low, high);
  const __m256i back = _mm256_unpackhi_epi8(low, high);
  store_vector(out, _mm256_permute2x128_si256(front, back, 0x20));
  store_vector(out + 16, _mm256_permute2x128_si256(front, back, 0x31));
}

#endif

// The bits of the subnormals of an 8-bit format as bfloat16, their exponent fields less the bias.
template <class Format>
struct SubnormalTable {
  alignas(16) std::uint16_t bits[8];
  constexpr SubnormalTable() : bits() {
    for (int i = 1; i < 1 << Format::mantissa_bits; ++i) {
      const std::uint32_t value = bits_of(decode<Format>(static_cast<std::uint8_t>(i)));
      bits[i] = static_cast<std::uint16_t>((value >> 16) - (float32::bias << 7));
    }
  }
};

// Decodes half a step of codes of eight bits times a power of two of this exponent field.
template <class Format>
[[gnu::always_inline]] inline Halves decode_halves(const std::uint8_t* codes, int field) {
  static_assert(is_fp8<Format>);
  static constexpr SubnormalTable<Format> table;
  const Halves words = widen_to_halves(codes);
  const Halves magnitude = words & std::uint16_t{0x7F};
  const Halves power = all_halves(field << 7);
  const Halves normal =
      (magnitude << (7 - Format::mantissa_bits)) + (power - all_halves(Format::bias << 7));
  // Two bytes of the table a word; what is no subnormal reads anything.
  const Halves index = magnitude * std::uint16_t{0x0202} + std::uint16_t{0x0100};
  const Halves low = look_up(reinterpret_cast<const std::uint8_t*>(table.bits), index) + power;
  const Halves subnormal = magnitude == all_halves(0) ? all_halves(0) : low;
  Halves bits =
      is_more(magnitude, all_halves((1 << Format::mantissa_bits) - 1)) ? normal : subnormal;
  int first_nan = Format::max_code + 1;
  if constexpr (Format::specials == Specials::ieee) {
    bits = magnitude == all_halves(first_nan++) ? all_halves(float32::infinity_bits >> 16) : bits;
  }
  bits |= words << 8 & std::uint16_t{0x8000};
  return is_more(magnitude, all_halves(first_nan - 1)) ? all_halves(bfloat16_nan) : bits;
}

// Decodes 32 codes of a block, of eight bits. False where a product might overflow or the factor is
// NaN; nothing is written then.
template <class Format>
[[gnu::always_inline]] inline bool decode_block(const std::uint8_t* codes, float factor,
                                                bfloat16* out) {
  const int field = static_cast<int>(bits_of(factor) >> float32::mantissa_bits);
  if (field > 2 * float32::bias - Format::max_exponent) return false;
  for (int i = 0; i < 32; i += half_lanes) {
    store_vector(out + i, decode_halves<Format>(codes + i, field));
  }
  return true;
}

}  // namespace
}  // namespace mxkern::cpu

#endif
