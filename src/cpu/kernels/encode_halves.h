// cpu/kernels/encode_halves.h: bfloat16 under scales that are powers of two to codes, in lanes of
// 16 bits. Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/code_lanes.h"
#include "mxkern/numerics/scheme.h"

#if defined(__AVX2__) && !defined(__AVX512F__)

namespace mxkern::cpu {
namespace {

// A power of two only moves the exponent of a bfloat16, and what is left is to round its seven
// mantissa bits.
template <class S>
inline constexpr bool encodes_halves =
    !S::has_tensor_scale && !S::Format::is_integer && S::block == step_elements;

// Halves are bits of bfloat16 magnitudes whose exponents are this much lower, so that those of
// elements in reach of a code stay positive.
inline constexpr int half_bias = 127 - 64;
inline constexpr int largest_half_field = float32::bias + 64;

[[gnu::always_inline]] inline __m256i all_halves(int value) {
  return _mm256_set1_epi16(static_cast<short>(value));
}

// Drops bits, with rounding to nearest, ties to even.
template <int bits>
[[gnu::always_inline]] inline __m256i rounded_halves(__m256i x) {
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(x, bits), all_halves(1));
  const __m256i sum = _mm256_add_epi16(_mm256_add_epi16(x, odd), all_halves((1 << (bits - 1)) - 1));
  return _mm256_srli_epi16(sum, bits);
}

// A byte for each of the 16 exponents from that of half the smallest subnormal on.
template <class Format>
struct ExponentTables {
  alignas(16) std::uint8_t factors[16];  // to 1/256 of the last place that a code has there
  alignas(16) std::uint8_t binades[16];  // the codes of the binades below
  constexpr ExponentTables() : factors(), binades() {
    constexpr int normal = Format::mantissa_bits + 1;
    for (int i = 0; i < 16; ++i) {
      factors[i] = static_cast<std::uint8_t>(1 << (i < normal ? i : normal));
      binades[i] =
          static_cast<std::uint8_t>((i < normal ? 0 : i - normal) << Format::mantissa_bits);
    }
  }
};

// Encodes bfloat16 that are to be multiplied with a power of two, whose exponent field lies
// `distance` / 128 below largest_half_field.
template <class Format>
class HalfEncoder {
 public:
  [[gnu::always_inline]] explicit HalfEncoder(__m256i distance)
      : zero_(magnitude(distance, zero_exponent)), smallest_(all_halves(-1)) {
    if constexpr (Format::bits == 4) {
      half_ = magnitude(distance, -2);
      one_ = _mm256_add_epi16(magnitude(distance, -1), all_halves(63));
    }
  }

  // The codes of the elements with these bits.
  [[gnu::always_inline]] __m256i operator()(__m256i bits) {
    const __m256i magnitude = _mm256_and_si256(bits, all_halves(0x7FFF));
    const __m256i distance = _mm256_subs_epu16(magnitude, zero_);
    __m256i code;
    if constexpr (Format::bits == 6) {
      code = encode_by_tables(distance);
    } else {
      code = rounded_halves<7 - Format::mantissa_bits>(distance);
    }
    if constexpr (Format::bits == 4) {
      // 0.25 is a tie between 0 and 0.5, 0.75 one between 0.5 and 1.
      code = _mm256_sub_epi16(code, _mm256_cmpgt_epi16(magnitude, half_));
      code = _mm256_sub_epi16(code, _mm256_cmpgt_epi16(magnitude, one_));
    }
    if constexpr (Format::bits == 8) {
      smallest_ = _mm256_min_epu16(smallest_, _mm256_sub_epi16(magnitude, all_halves(1)));
    }
    code = _mm256_min_epu16(code, all_halves(Format::max_code));
    const __m256i sign =
        _mm256_and_si256(_mm256_srli_epi16(bits, 16 - Format::bits), all_halves(Format::sign_mask));
    return _mm256_or_si256(code, sign);
  }

  // Whether all codes so far are right. Subnormals of 8-bit formats are left to others: next to the
  // largest element of a block hardly any element is one.
  [[gnu::always_inline]] bool succeeded() const {
    if constexpr (Format::bits != 8) return true;
    // Zeros, less one, are the largest.
    const __m256i below = _mm256_subs_epu16(_mm256_add_epi16(zero_, all_halves(127)), smallest_);
    return _mm256_testz_si256(below, below) != 0;
  }

 private:
  // Where magnitudes begin that are more than zero here: with exponent field 0, with that of half
  // the smallest subnormal, and in E2M1 with 1.
  static constexpr int zero_exponent =
      Format::min_exponent - (Format::bits == 8   ? 1
                              : Format::bits == 6 ? Format::mantissa_bits + 1
                                                  : 0);

  [[gnu::always_inline]] static __m256i magnitude(__m256i distance, int exponent) {
    return _mm256_add_epi16(distance, all_halves((half_bias + exponent) << 7));
  }

  // Significands of eight bits become multiples of 1/256 of a last place, plus 127: those with a
  // fraction above a half go up when that is dropped, ties do not.
  [[gnu::always_inline]] static __m256i encode_by_tables(__m256i distance) {
    static constexpr ExponentTables<Format> tables;
    const auto table = [](const std::uint8_t* bytes) __attribute__((always_inline)) {
      return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes)));
    };
    const __m256i exponent = _mm256_srli_epi16(distance, 7);
    // The upper bytes multiply 127 with entry 0, which is 1.
    const __m256i factors = _mm256_shuffle_epi8(table(tables.factors), exponent);
    const __m256i significand =
        _mm256_or_si256(_mm256_and_si256(distance, all_halves(0x7F)), all_halves(0x7F80));
    const __m256i fixed = _mm256_maddubs_epi16(significand, factors);
    // A tie next to an odd code goes up after all.
    const __m256i odd_tie =
        _mm256_cmpeq_epi16(_mm256_and_si256(fixed, all_halves(0x1FF)), all_halves(0x1FF));
    const __m256i place = _mm256_sub_epi16(_mm256_srli_epi16(fixed, 8), odd_tie);
    return _mm256_add_epi16(place, _mm256_shuffle_epi8(table(tables.binades), exponent));
  }

  __m256i zero_;
  __m256i half_;
  __m256i one_;
  __m256i smallest_;
};

// Encodes one block, which is a step. False where that takes another way; nothing is written then.
template <class S>
[[gnu::always_inline]] inline bool encode_halves(const bfloat16* x, float multiplier,
                                                 std::uint8_t* codes) {
  const int field = static_cast<int>(bits_of(multiplier) >> float32::mantissa_bits);
  if (field == 0 || field > largest_half_field) return false;
  HalfEncoder<typename S::Format> encode(all_halves((largest_half_field - field) << 7));
  const __m256i low = encode(load_vector<__m256i>(x));
  const __m256i high = encode(load_vector<__m256i>(x + 16));
  if (!encode.succeeded()) return false;
  const __m256i packed = _mm256_packus_epi16(low, high);
  store_codes<S::Format::bits>(codes, StepBytes(_mm256_permute4x64_epi64(packed, 0b11011000)));
  return true;
}

}  // namespace
}  // namespace mxkern::cpu

#endif
