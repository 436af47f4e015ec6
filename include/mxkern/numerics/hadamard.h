// mxkern/numerics/hadamard.h: the random Hadamard transform of one group of values.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "mxkern/core/math.h"

namespace mxkern {

// Which elements of a group are negated: bit i of the mask, element i. Groups of up to 128.
struct SignMask {
  std::uint64_t low;
  std::uint64_t high;

  MXKERN_HOST_DEVICE constexpr std::uint32_t bit(int i) const {
    return static_cast<std::uint32_t>((i < 64 ? low >> i : high >> (i - 64)) & 1u);
  }
};

// Transformer Engine's mask for groups of 16, repeated for longer groups.
inline constexpr SignMask default_sign_mask = {0xD7E8D7E8D7E8D7E8u, 0xD7E8D7E8D7E8D7E8u};

inline constexpr int hadamard_sizes[] = {16, 32, 64, 128};

// 1 / sqrt(n), rounded to float32.
MXKERN_HOST_DEVICE constexpr float hadamard_norm(int n) {
  return n == 16 ? 0.25f : n == 32 ? 0x1.6a09e6p-3f : n == 64 ? 0.125f : 0x1.6a09e6p-4f;
}

// Negates what the mask says; exact.
MXKERN_HOST_DEVICE constexpr float flip_sign(float value, std::uint32_t negate) {
  return float_of(bits_of(value) ^ (negate << 31));
}

// x := x H, H[r][c] = (-1)^popcount(r & c), by butterflies of growing stride: float32 sums in this
// order are part of the rule. Those of strides below `First` are there already.
template <int First = 1, std::size_t N, class Float>
MXKERN_HOST_DEVICE constexpr void hadamard_butterflies(Float (&x)[N]) {
  constexpr int n = static_cast<int>(N);
  for (int stride = First; stride < n; stride *= 2) {
    for (int i = 0; i < n; ++i) {
      if ((i & stride) == 0) {
        const Float a = x[i];
        const Float b = x[i + stride];
        x[i] = a + b;
        x[i + stride] = a - b;
      }
    }
  }
}

// x := (x * sign) H / sqrt(N), in float32.
template <std::size_t N>
MXKERN_HOST_DEVICE constexpr void random_hadamard(float (&x)[N], SignMask signs) {
  constexpr int n = static_cast<int>(N);
  for (int i = 0; i < n; ++i) x[i] = flip_sign(x[i], signs.bit(i));
  hadamard_butterflies(x);
  for (int i = 0; i < n; ++i) x[i] *= hadamard_norm(n);
}

// The signs of elements relative to those of the halves of butterflies: element i's times that of i
// without its lowest bit. The first one is not used.
MXKERN_HOST_DEVICE constexpr void relative_signs(SignMask signs, float (&relative)[16]) {
  for (int i = 0; i < 16; ++i) {
    relative[i] = signs.bit(i) != signs.bit(i & (i - 1)) ? -1.0f : 1.0f;
  }
}

// The largest magnitude of random_hadamard(x, signs) before its factor, without NaNs. A half's sign
// only comes in where it meets the other half, as rounding is the same on both sides of zero, and
// the larger one of |a + b| and |a - b| is |a| + |b|: half the operations of a transform.
MXKERN_HOST_DEVICE float hadamard_magnitude(float (&x)[16], const float (&relative)[16]) {
  for (int stride = 1; stride < 8; stride *= 2) {
    for (int i = 0; i < 16; ++i) {
      if ((i & stride) == 0) {
        const float a = x[i], b = x[i + stride], sign = relative[(i & -2 * stride) + stride];
        x[i] = fmaf(b, sign, a);
        x[i + stride] = fmaf(b, -sign, a);
      }
    }
  }
  float largest = 0.0f;
  for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(x[i]) + fabsf(x[i + 8]));
  return largest;
}

// x := (x H / sqrt(N)) * sign: undoes random_hadamard.
template <std::size_t N>
MXKERN_HOST_DEVICE constexpr void inverse_random_hadamard(float (&x)[N], SignMask signs) {
  constexpr int n = static_cast<int>(N);
  hadamard_butterflies(x);
  for (int i = 0; i < n; ++i) x[i] = flip_sign(x[i] * hadamard_norm(n), signs.bit(i));
}

}  // namespace mxkern
