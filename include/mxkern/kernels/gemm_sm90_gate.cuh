// mxkern/kernels/gemm_sm90_gate.cuh: lets a kernel return at once, decided on the device.
#pragma once

#include <cstdint>

namespace mxkern::kernels {

// Which of two kernels on the same operands runs: see CoreGate.
struct GateParameters {
  const std::uint8_t *left_spreads, *right_spreads;  // null: all 0
  std::int64_t left_count, right_count;
  std::uint8_t left_limit, right_limit;
  bool is_open, wants_narrow;
};

// Whether one of the bytes exceeds the limit, as far as this thread has looked.
__device__ __forceinline__ bool exceeds(const std::uint8_t* bytes, std::int64_t count, int limit) {
  bool found = false;
  std::int64_t done = 0;
  if (reinterpret_cast<std::uintptr_t>(bytes) % 16 == 0) {
    const std::uint32_t limits = static_cast<std::uint32_t>(limit) * 0x01010101u;
    for (std::int64_t i = threadIdx.x; i < count / 16; i += blockDim.x) {
      const uint4 words = reinterpret_cast<const uint4*>(bytes)[i];
      found = found || __vcmpgtu4(words.x, limits) || __vcmpgtu4(words.y, limits) ||
              __vcmpgtu4(words.z, limits) || __vcmpgtu4(words.w, limits);
    }
    done = count / 16 * 16;
  }
  for (std::int64_t i = done + threadIdx.x; i < count; i += blockDim.x) {
    found = found || bytes[i] > limit;
  }
  return found;
}

__device__ __forceinline__ bool passes(const GateParameters& gate) {
  if (gate.is_open) return true;
  bool wide = false;
  if (gate.left_spreads) wide = exceeds(gate.left_spreads, gate.left_count, gate.left_limit);
  if (gate.right_spreads) {
    wide = exceeds(gate.right_spreads, gate.right_count, gate.right_limit) || wide;
  }
  return (__syncthreads_or(wide) == 0) == gate.wants_narrow;
}

}  // namespace mxkern::kernels
