// mxkern/kernels/ptx/pairs.cuh: two values of 16 bits in a word at a time.
#pragma once

#include <cstdint>

namespace mxkern::ptx {

// Of bfloat16 or, with IsHalf, of float16; rounded to nearest, ties to even.
template <bool IsHalf = false>
__device__ __forceinline__ std::uint32_t multiply_pair(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product;
  if constexpr (IsHalf) {
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  } else {
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  }
  return product;
}

// The larger and the smaller magnitudes of two pairs of bfloat16, under any signs. NaN only where
// both are.
__device__ __forceinline__ std::uint32_t larger_magnitudes(std::uint32_t a, std::uint32_t b) {
  std::uint32_t larger;
  asm("max.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}
__device__ __forceinline__ std::uint32_t smaller_magnitudes(std::uint32_t a, std::uint32_t b) {
  std::uint32_t smaller;
  asm("min.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(smaller) : "r"(a), "r"(b));
  return smaller;
}

// Two of four bytes, each with its sign in the byte above: 0x9180 are the first two, 0xB3A2 the
// others.
template <int Selector>
__device__ __forceinline__ std::uint32_t signs_beside(std::uint32_t bytes) {
  std::uint32_t pair;
  asm("prmt.b32 %0, %1, %1, %2;" : "=r"(pair) : "r"(bytes), "n"(Selector));
  return pair;
}

}  // namespace mxkern::ptx
