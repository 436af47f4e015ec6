// mxkern/kernels/core_gate.cuh: whether it is a kernel's turn, decided by the spreads of two
// operands.
#pragma once

#include <cstdint>

namespace mxkern::kernels {

// A kernel runs where "every spread is within its limit" equals `wants_narrow`.
struct SpreadGate {
  bool is_open = true;  // no question
  bool wants_narrow = true;
  unsigned left_limit = 0, right_limit = 0;
  const std::uint8_t* left = nullptr;  // null: all 0; starts on 16 bytes
  const std::uint8_t* right = nullptr;
  std::int64_t left_count = 0, right_count = 0;
};

// Whether one of this thread's share of the spreads is beyond the limit.
__device__ __forceinline__ bool is_wide(const std::uint8_t* spreads, std::int64_t count,
                                        unsigned limit) {
  if (spreads == nullptr) return false;
  const unsigned limits = limit * 0x01010101u;
  std::uint32_t beyond = 0;
  const std::int64_t whole = count / 16;
  for (std::int64_t i = threadIdx.x; i < whole; i += blockDim.x) {
    const uint4 v = __ldg(reinterpret_cast<const uint4*>(spreads) + i);
    beyond |= __vcmpgtu4(v.x, limits) | __vcmpgtu4(v.y, limits) | __vcmpgtu4(v.z, limits) |
              __vcmpgtu4(v.w, limits);
  }
  for (std::int64_t i = whole * 16 + threadIdx.x; i < count; i += blockDim.x) {
    beyond |= spreads[i] > limit ? 1u : 0u;
  }
  return beyond != 0;
}

// Whether the kernel is to run. All threads of a thread block call this, and get one answer.
__device__ __forceinline__ bool is_open(const SpreadGate& gate) {
  if (gate.is_open) return true;
  const bool wide = is_wide(gate.left, gate.left_count, gate.left_limit) ||
                    is_wide(gate.right, gate.right_count, gate.right_limit);
  return (__syncthreads_or(wide ? 1 : 0) == 0) == gate.wants_narrow;
}

}  // namespace mxkern::kernels
