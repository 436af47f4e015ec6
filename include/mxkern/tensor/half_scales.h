// mxkern/tensor/half_scales.h: E8M0 scales of a row as float16, relative to the row's largest.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/numerics/format.h"

namespace mxkern {

// A code as a half is its value times 2^(bias - 15), an integer's 64 times its value. Times a power
// of two for its scale, the largest scale of the row with a code that is not zero being its top, it
// is exact if that power is no subnormal number and the code's last bit is not below 2^-24.
template <class Format>
struct HalfScales {
  // Of the top, as the exponent field of a half: as large as halves and the largest code allow.
  static constexpr int top_field = [] {
    if constexpr (Format::is_integer) {
      return 15 + 8;  // codes have up to seven bits, and -128
    } else {
      return lower_of(30, 30 + 15 - (Format::max_code >> Format::mantissa_bits));
    }
  }();
  // A code as a half is its value times two to this.
  static constexpr int code_exponent = [] {
    if constexpr (Format::is_integer) {
      return Format::mantissa_bits;
    } else {
      return Format::bias - 15;
    }
  }();
  // Sums of products of such halves are to be multiplied by 2 to the top plus this.
  static constexpr int sum_exponent = -127 - code_exponent - (top_field - 15);

  // From this field on halves hold all codes exactly.
  static constexpr int safe_field = Format::is_integer ? 1 : 5 + Format::mantissa_bits;

  // Which place a code's last bit has: its exponent field, of subnormal numbers 1.
  MXKERN_HOST_DEVICE static constexpr int place(std::uint32_t magnitude) {
    if constexpr (Format::is_integer) {
      return 1;
    } else {
      return higher_of(1, static_cast<int>(magnitude >> Format::mantissa_bits));
    }
  }
  // Of a row with this top, this lowest scale, and this lowest sum of a scale and a place.
  MXKERN_HOST_DEVICE static constexpr bool are_exact(int top, int lowest_scale, int lowest_place) {
    const int distance = top_field - top;
    if constexpr (Format::is_integer) {
      return lowest_scale + distance >= 1;
    } else {
      return lowest_scale + distance >= 1 && lowest_place + distance >= 6 + Format::mantissa_bits;
    }
  }
};

// What is known of a row's block scales.
struct ScaleSpread {
  std::uint8_t top;      // the largest one of a block whose codes are not all zeros
  std::uint8_t is_wide;  // not all products are exact
  // Those which are not are in blocks from the first to the last of these; no more than 65535.
  std::uint16_t first_far, last_far;
  std::uint8_t octaves;  // from the top to the lowest one of such a block; 255: as many, or more
  std::uint8_t unused;
};
static_assert(sizeof(ScaleSpread) == 8);

static_assert(HalfScales<E2M1>::top_field == 30 && HalfScales<E2M1>::sum_exponent == -128);
static_assert(HalfScales<E5M2>::top_field == 15 && HalfScales<E5M2>::sum_exponent == -127);
static_assert(HalfScales<E2M1>::are_exact(124, 100, 101));
static_assert(!HalfScales<E2M1>::are_exact(125, 100, 101));

}  // namespace mxkern
