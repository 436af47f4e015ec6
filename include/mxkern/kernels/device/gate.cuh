// mxkern/kernels/device/gate.cuh: whether it is a kernel's turn, decided by the spreads of two
// operands.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/dependents.cuh"

namespace mxkern::kernels {

// A kernel runs where "every spread is within its limit" equals `wants_narrow`.
struct SpreadGate {
  bool is_open = true;  // no question
  bool wants_narrow = true;
  bool is_settled = false;  // the spreads are complete before the kernel ahead lets this one start
  unsigned left_limit = 0, right_limit = 0;
  const std::uint8_t* left = nullptr;  // null: all 0
  const std::uint8_t* right = nullptr;
  std::int64_t left_count = 0, right_count = 0;
};

// The spreads of one operand against their limit. They are read past the first-level cache, which
// a kernel that has not waited may find as another one left it.
struct SpreadLimit {
  const std::uint8_t* spreads;
  unsigned limits;  // in each byte
  std::int64_t count;
  std::int64_t pieces;  // of 16 bytes; none where they are not aligned

  __device__ __forceinline__ SpreadLimit(const std::uint8_t* bytes, std::int64_t number,
                                         unsigned limit)
      : spreads(bytes),
        limits(limit * 0x01010101u),
        count(bytes == nullptr ? 0 : number),
        pieces(reinterpret_cast<std::uintptr_t>(bytes) % 16 == 0 ? count / 16 : 0) {}

  // Zeros beyond the last one.
  __device__ __forceinline__ uint4 load(std::int64_t piece) const {
    return piece < pieces ? __ldcg(reinterpret_cast<const uint4*>(spreads) + piece)
                          : make_uint4(0, 0, 0, 0);
  }
  __device__ __forceinline__ std::uint32_t beyond(const uint4& v) const {
    return __vcmpgtu4(v.x, limits) | __vcmpgtu4(v.y, limits) | __vcmpgtu4(v.z, limits) |
           __vcmpgtu4(v.w, limits);
  }
  // Of this thread's share of what lies behind the last piece.
  __device__ __forceinline__ std::uint32_t rest_beyond() const {
    std::uint32_t found = 0;
    for (std::int64_t i = pieces * 16 + threadIdx.x; i < count; i += blockDim.x) {
      found |= __ldcg(spreads + i) > (limits & 0xFFu) ? 1u : 0u;
    }
    return found;
  }
};

// Whether the kernel is to run. All threads of a thread block call this, and get one answer.
__device__ __forceinline__ bool is_open(const SpreadGate& gate) {
  if (gate.is_open) return true;
  const SpreadLimit left(gate.left, gate.left_count, gate.left_limit);
  const SpreadLimit right(gate.right, gate.right_count, gate.right_limit);
  std::uint32_t beyond = 0;
  const std::int64_t pieces = max(left.pieces, right.pieces);
  for (std::int64_t i = threadIdx.x; i < pieces; i += blockDim.x) {
    const uint4 on_left = left.load(i), on_right = right.load(i);  // both are on their way
    beyond |= left.beyond(on_left) | right.beyond(on_right);
  }
  beyond |= left.rest_beyond() | right.rest_beyond();
  return (__syncthreads_or(static_cast<int>(beyond)) == 0) == gate.wants_narrow;
}

// Waits for the kernels ahead; whether the kernel is to run. Where the spreads are settled it asks
// before it waits, and lets the next kernel start before either. What that one may read without
// waiting is then what the kernel that settled them has waited for.
__device__ __forceinline__ bool wait_at_gate(const SpreadGate& gate) {
  if (gate.is_settled) {
    let_dependents_start();
    const bool opens = is_open(gate);
    wait_for_kernels_ahead();
    return opens;
  }
  wait_for_kernels_ahead();
  const bool opens = is_open(gate);
  let_dependents_start();
  return opens;
}

}  // namespace mxkern::kernels
