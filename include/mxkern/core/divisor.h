// mxkern/core/divisor.h: divisions by a number that is known ahead, as one multiplication.
#pragma once

#include <cstdint>

#include "mxkern/core/platform.h"

namespace mxkern {

// GPUs take a hundred instructions to divide integers. The multiplier is 2^(31 + shift) over the
// divisor, rounded up, where 2^shift is the least power that is no less than the divisor: then
// numbers up to 2^31 times its error stay below 2^(31 + shift) / divisor, and quotients are exact
// (Granlund and Montgomery, Division by Invariant Integers using Multiplication, 1994).
struct Divisor {
  std::uint32_t multiplier = std::uint32_t{1} << 31;  // of 1
  int shift = 0;

  constexpr Divisor() = default;
  // divisor: 1 and more.
  constexpr explicit Divisor(int divisor) {
    const auto d = static_cast<std::uint64_t>(divisor);
    while ((std::uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<std::uint32_t>(((std::uint64_t{1} << (31 + shift)) + d - 1) / d);
  }

  // Of a number that is not negative.
  MXKERN_HOST_DEVICE constexpr int quotient(int number) const {
    const std::uint64_t product =
        std::uint64_t{static_cast<std::uint32_t>(number) * 2} * multiplier;
    return static_cast<int>(static_cast<std::uint32_t>(product >> 32) >> shift);
  }
};

}  // namespace mxkern
