// mxkern/numerics/swiglu.h: SwiGLU of a gate and of what it lets through, by IEEE float32
// operations alone, so that every device finds the same bits.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/core/platform.h"

namespace mxkern {

// e^x within 2 units in the last place, subnormal results included; 0 and Inf beyond, NaN of NaN.
template <class Float>
MXKERN_HOST_DEVICE constexpr Float exponential(Float x) {
  using Bits = typename Lanes<Float>::Bits;
  constexpr float log2_e = 1.44269504f;
  // ln 2 in two parts; a whole number of up to 8 bits times the first one is exact.
  constexpr float ln2_high = 0x1.63p-1f, ln2_low = -2.12194440e-4f;
  constexpr float rounds = 0x1.8p23f;  // what is added to it becomes a whole number
  constexpr float lowest = -104.0f, highest = 89.0f;
  Float bounded = x < lowest ? broadcast<Float>(lowest) : x;
  bounded = bounded > highest ? broadcast<Float>(highest) : bounded;
  const Float shifted = bounded * log2_e + rounds;
  const Float octaves = shifted - rounds;
  const Float r = bounded - octaves * ln2_high - octaves * ln2_low;
  // The series up to r^7: |r| is at most ln 2 / 2, and the next term below 2^-27.
  Float sum = broadcast<Float>(1.0f / 5040.0f);
  sum = sum * r + 1.0f / 720.0f;
  sum = sum * r + 1.0f / 120.0f;
  sum = sum * r + 1.0f / 24.0f;
  sum = sum * r + 1.0f / 6.0f;
  sum = sum * r + 0.5f;
  const Float power = sum * (r * r) + r + 1.0f;
  // 2^octaves in two factors: one alone may lie beyond a float32. Halves of numbers below zero are
  // those of numbers that are 512 more.
  constexpr std::uint32_t more = 512, bias = float32::bias;
  const Bits whole = bits_of(shifted) - bits_of(rounds);
  const Bits half = ((whole + more) >> 1) - more / 2;
  const Bits low = (half + bias) << float32::mantissa_bits;
  const Bits high = (whole - half + bias) << float32::mantissa_bits;
  return power * float_of<Bits>(low) * float_of<Bits>(high);
}

// gate / (1 + e^(-alpha gate)) * (up + offset), with gate at most `limit` and up within it, in this
// order of operations. alpha 1, limit Inf and offset 0: plain SwiGLU, as Llama has it.
template <class Float>
MXKERN_HOST_DEVICE constexpr Float swiglu(Float gate, Float up, float alpha, float limit,
                                          float offset) {
  gate = gate > limit ? broadcast<Float>(limit) : gate;
  up = up > limit ? broadcast<Float>(limit) : up;
  up = up < -limit ? broadcast<Float>(-limit) : up;
  return gate / (exponential(-(gate * alpha)) + 1.0f) * (up + offset);
}

static_assert(exponential(0.0f) == 1.0f);
static_assert(swiglu(0.0f, 3.0f, 1.0f, 7.0f, 1.0f) == 0.0f);

}  // namespace mxkern
