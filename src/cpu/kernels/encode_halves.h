// cpu/kernels/encode_halves.h: blocks of bfloat16 to codes of 4 and 8 bits in lanes of 16 bits.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/code_lanes.h"
#include "mxkern/numerics/scheme.h"

#if defined(__AVX2__) && !defined(__AVX512F__)

namespace mxkern::cpu {
namespace {

// A power of two only moves the exponent of a bfloat16, and what is left is to round its seven
// mantissa bits. Subnormals of 8-bit formats are left to others: next to the largest element of a
// block hardly any element is one.
template <class S>
inline constexpr bool encodes_halves = !S::has_tensor_scale && !S::Format::is_integer &&
                                       S::Format::bits != 6 && S::block == step_elements;

// Halves are bits of bfloat16 magnitudes whose exponents are this much lower, so that those of
// elements in reach of a code stay positive.
inline constexpr int half_bias = 127 - 64;

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

// Encodes one block, which is a step. False where that takes another way; nothing is written then.
template <class S>
[[gnu::always_inline]] inline bool encode_halves(const bfloat16* x, float multiplier,
                                                 std::uint8_t* codes) {
  using Format = typename S::Format;
  constexpr int dropped = 7 - Format::mantissa_bits;
  constexpr bool few_codes = Format::bits == 4;
  const int field = static_cast<int>(bits_of(multiplier) >> float32::mantissa_bits);
  constexpr int largest_field = float32::bias + 64;
  if (field == 0 || field > largest_field) return false;
  const int distance = (largest_field - field) << 7;
  // Where magnitudes with exponent field 0 begin, and in E2M1 those of 1.
  const int zero = distance + ((half_bias + Format::min_exponent - (few_codes ? 0 : 1)) << 7);
  const __m256i from = all_halves(zero);

  __m256i lanes[2];
  __m256i smallest = all_halves(-1);
  for (int i = 0; i < 2; ++i) {
    const auto bits = load_vector<__m256i>(x + i * 16);
    const __m256i magnitude = _mm256_and_si256(bits, all_halves(0x7FFF));
    __m256i code = rounded_halves<dropped>(_mm256_subs_epu16(magnitude, from));
    if constexpr (few_codes) {
      // 0.25 is a tie between 0 and 0.5, 0.75 one between 0.5 and 1.
      const __m256i half = all_halves(distance + ((half_bias - 2) << 7));
      const __m256i one = all_halves(distance + ((half_bias - 1) << 7) + 63);
      code = _mm256_sub_epi16(code, _mm256_cmpgt_epi16(magnitude, half));
      code = _mm256_sub_epi16(code, _mm256_cmpgt_epi16(magnitude, one));
    } else {
      smallest = _mm256_min_epu16(smallest, _mm256_sub_epi16(magnitude, all_halves(1)));
    }
    code = _mm256_min_epu16(code, all_halves(Format::max_code));
    const __m256i sign =
        _mm256_and_si256(_mm256_srli_epi16(bits, 16 - Format::bits), all_halves(Format::sign_mask));
    lanes[i] = _mm256_or_si256(code, sign);
  }
  if constexpr (!few_codes) {
    // Zeros, less one, are the largest.
    const __m256i below = _mm256_subs_epu16(all_halves(zero + 127), smallest);
    if (!_mm256_testz_si256(below, below)) return false;
  }
  const __m256i packed = _mm256_packus_epi16(lanes[0], lanes[1]);
  store_codes<Format::bits>(codes, StepBytes(_mm256_permute4x64_epi64(packed, 0b11011000)));
  return true;
}

}  // namespace
}  // namespace mxkern::cpu

#endif
