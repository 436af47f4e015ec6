// tests/support/random_bits.h: reproducible bit patterns for tests.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"

namespace mxkern::test {

// SplitMix64: one 64-bit state, good enough to visit bit patterns without a pattern.
class RandomBits {
 public:
  explicit RandomBits(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next64() {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  std::uint32_t next() { return static_cast<std::uint32_t>(next64() >> 32); }

  // Uniform in [low, high].
  int between(int low, int high) {
    return low + static_cast<int>(next64() % static_cast<std::uint64_t>(high - low + 1));
  }

  // The float32 bits of a value of either sign whose power of two lies in [2^low, 2^high]. A third
  // of them has few mantissa bits, so that ties are met.
  std::uint32_t float_bits(int low, int high) {
    const std::uint64_t word = next64();
    const std::uint32_t sign = static_cast<std::uint32_t>(word >> 63) << 31;
    std::uint32_t mantissa = static_cast<std::uint32_t>(word) & float32::mantissa_mask;
    if ((word >> 40) % 3 == 0) mantissa &= 0x007E0000u;
    const auto exponent = static_cast<std::uint32_t>(between(low, high) + float32::bias);
    return sign | (exponent << float32::mantissa_bits) | mantissa;
  }

 private:
  std::uint64_t state_;
};

}  // namespace mxkern::test
