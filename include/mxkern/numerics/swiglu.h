// mxkern/numerics/swiglu.h: SwiGLU of a gate and of what it lets through, by IEEE float32
// operations alone, so that every device finds the same bits.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/core/platform.h"

namespace mxkern {

// e^x within 2 units in the last place, subnormal results included; 0 and Inf beyond, NaN of NaN.
MXKERN_HOST_DEVICE constexpr float exponential(float x) {
  constexpr float log2_e = 1.44269504f;
  // ln 2 in two parts; a whole number of up to 8 bits times the first one is exact.
  constexpr float ln2_high = 0x1.63p-1f, ln2_low = -2.12194440e-4f;
  constexpr float rounds = 0x1.8p23f;  // what is added to it becomes a whole number
  const float bounded = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
  const float shifted = bounded * log2_e + rounds;
  const float octaves = shifted - rounds;
  const float r = bounded - octaves * ln2_high - octaves * ln2_low;
  // The series up to r^7: |r| is at most ln 2 / 2, and the next term below 2^-27.
  float sum = 1.0f / 5040.0f;
  sum = sum * r + 1.0f / 720.0f;
  sum = sum * r + 1.0f / 120.0f;
  sum = sum * r + 1.0f / 24.0f;
  sum = sum * r + 1.0f / 6.0f;
  sum = sum * r + 0.5f;
  const float power = sum * (r * r) + r + 1.0f;
  // 2^octaves in two factors: one alone may lie beyond a float32.
  const auto whole = static_cast<std::int32_t>(bits_of(shifted) - bits_of(rounds));
  const std::int32_t half = whole >> 1;
  const auto factor = [](std::int32_t exponent) {
    return float_of(static_cast<std::uint32_t>(exponent + 127) << 23);
  };
  return power * factor(half) * factor(whole - half);
}

// gate / (1 + e^(-alpha gate)) * (up + offset), with gate at most `limit` and up within it, in this
// order of operations. alpha 1, limit Inf and offset 0: plain SwiGLU, as Llama has it.
MXKERN_HOST_DEVICE constexpr float swiglu(float gate, float up, float alpha, float limit,
                                          float offset) {
  gate = gate > limit ? limit : gate;
  up = up > limit ? limit : up < -limit ? -limit : up;
  return gate / (1.0f + exponential(-(alpha * gate))) * (up + offset);
}

static_assert(exponential(0.0f) == 1.0f);
static_assert(swiglu(0.0f, 3.0f, 1.0f, 7.0f, 1.0f) == 0.0f);

}  // namespace mxkern
