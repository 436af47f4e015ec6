// cpu/lanes.h: vectors of floats, as wide as the instruction set that the including file is
// compiled for, under the numerics' templates. Only files in cpu/instances/ may include it.
#pragma once

#include <cstdint>
#include <cstring>

#include "mxkern/core/dtype.h"
#include "mxkern/core/math.h"

namespace mxkern {
namespace cpu {

#if defined(__AVX512F__)
inline constexpr int lane_count = 16;
#elif defined(__AVX2__)
inline constexpr int lane_count = 8;
#else
inline constexpr int lane_count = 4;
#endif

using FloatLanes = float __attribute__((vector_size(4 * lane_count)));
using BitLanes = std::uint32_t __attribute__((vector_size(4 * lane_count)));
using HalfLanes = std::uint16_t __attribute__((vector_size(2 * lane_count)));
using ByteLanes = std::uint8_t __attribute__((vector_size(lane_count)));

}  // namespace cpu

template <>
struct Lanes<cpu::FloatLanes> {
  using Bits = cpu::BitLanes;
};
template <>
struct Lanes<cpu::BitLanes> {
  using Float = cpu::FloatLanes;
};

}  // namespace mxkern
