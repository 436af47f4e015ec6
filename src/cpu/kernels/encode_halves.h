// cpu/kernels/encode_halves.h: bfloat16 under scales that are powers of two to codes, in lanes of
// 16 bits. Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/halves.h"
#include "mxkern/numerics/scheme.h"

#if defined(__AVX2__)

namespace mxkern::cpu {
namespace {

// A power of two only moves the exponent of a bfloat16, and what is left is to round its seven
// mantissa bits.
template <class S>
inline constexpr bool encodes_halves =
    S::ScaleFormat::is_power_of_two&& is_ocp_float<typename S::Format>&& S::block % half_lanes == 0;

// Halves are bits of bfloat16 magnitudes whose exponents are this much lower, so that those of
// elements in reach of a code stay positive.
inline constexpr int half_bias = 127 - 64;
inline constexpr int largest_half_field = float32::bias + 64;

// Drops bits, with rounding to nearest, ties to even.
template <int bits>
[[gnu::always_inline]] inline Halves rounded_halves(Halves x) {
  constexpr std::uint16_t below_half = (1 << (bits - 1)) - 1;
  return (x + (x >> bits & std::uint16_t{1}) + below_half) >> bits;
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
  [[gnu::always_inline]] explicit HalfEncoder(Halves distance)
      : zero_(magnitude(distance, zero_exponent)), smallest_(all_halves(-1)) {
    if constexpr (is_fp4<Format>) {
      half_ = magnitude(distance, -2);
      one_ = magnitude(distance, -1) + std::uint16_t{63};
    }
  }

  // The codes of the elements with these bits.
  [[gnu::always_inline]] Halves operator()(Halves bits) {
    const Halves magnitude = bits & std::uint16_t{0x7FFF};
    const Halves distance = difference_from_zero(magnitude, zero_);
    Halves code;
    if constexpr (is_fp6<Format>) {
      code = encode_by_tables(distance);
    } else {
      code = rounded_halves<7 - Format::mantissa_bits>(distance);
    }
    if constexpr (is_fp4<Format>) {
      // 0.25 is a tie between 0 and 0.5, 0.75 one between 0.5 and 1.
      code = one_more_where(code, magnitude, half_);
      code = one_more_where(code, magnitude, one_);
    }
    if constexpr (is_fp8<Format>) {
      smallest_ = lower_of<Halves>(smallest_, magnitude - std::uint16_t{1});
    }
    code = lower_of<Halves>(code, all_halves(Format::max_code));
    return code | (bits >> (16 - Format::bits) & std::uint16_t{Format::sign_mask});
  }

  // Whether all codes so far are right. Subnormals of 8-bit formats are left to others: next to the
  // largest element of a block hardly any element is one.
  [[gnu::always_inline]] bool succeeded() const {
    if constexpr (!is_fp8<Format>) return true;
    // Zeros, less one, are the largest.
    return are_zeros(difference_from_zero(zero_ + std::uint16_t{127}, smallest_));
  }

 private:
  // Where magnitudes begin that are more than zero here: with exponent field 0, with that of half
  // the smallest subnormal, and in E2M1 with 1.
  static constexpr int zero_exponent =
      Format::min_exponent - (is_fp8<Format>   ? 1
                              : is_fp6<Format> ? Format::mantissa_bits + 1
                                               : 0);

  [[gnu::always_inline]] static Halves magnitude(Halves distance, int exponent) {
    return distance + all_halves((half_bias + exponent) << 7);
  }

  // Significands of eight bits become multiples of 1/256 of a last place, plus 127: those with a
  // fraction above a half go up when that is dropped, ties do not.
  [[gnu::always_inline]] static Halves encode_by_tables(Halves distance) {
    static constexpr ExponentTables<Format> tables;
    const Halves exponent = distance >> 7;
    // The upper bytes multiply 127 with entry 0, which is 1.
    const Halves factors = look_up(tables.factors, exponent);
    const Halves significand = (distance & std::uint16_t{0x7F}) | std::uint16_t{0x7F80};
    const Halves fixed = multiply_bytes(significand, factors);
    // A tie next to an odd code goes up after all.
    const auto odd_tie = Halves((fixed & std::uint16_t{0x1FF}) == all_halves(0x1FF));
    return (fixed >> 8) - odd_tie + look_up(tables.binades, exponent);
  }

  Halves zero_;
  Halves half_;
  Halves one_;
  Halves smallest_;
};

// Encodes a step, whose first block has this multiplier. False where a block of it takes another
// way; nothing is written then.
template <class S>
[[gnu::always_inline]] inline bool encode_halves(const bfloat16* x, const float* multipliers,
                                                 std::uint8_t* codes) {
  using Encoder = HalfEncoder<typename S::Format>;
  constexpr int blocks = S::block < step_elements ? 2 : 1;
  Halves distances[2];
  for (int b = 0; b < blocks; ++b) {
    const int field = static_cast<int>(bits_of(multipliers[b]) >> float32::mantissa_bits);
    if (field == 0 || field > largest_half_field) return false;
    distances[b] = all_halves((largest_half_field - field) << 7);
  }
  const auto low_bits = load_vector<Halves>(x), high_bits = load_vector<Halves>(x + half_lanes);
  Encoder first(distances[0]), second(distances[blocks - 1]);
  const Halves low = first(low_bits);
  const Halves high = blocks == 1 ? first(high_bits) : second(high_bits);
  if (!first.succeeded() || (blocks > 1 && !second.succeeded())) return false;
  store_codes<S::Format::bits>(codes, narrow_halves(low, high));
  return true;
}

}  // namespace
}  // namespace mxkern::cpu

#endif
