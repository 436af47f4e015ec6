// mxkern/kernels/ptx/stmatrix.cuh: fragments of 8 x 8 matrices of 16-bit values to shared memory.
#pragma once

#include <cstdint>

namespace mxkern::ptx {

// Four matrices; lane 8 i + r has the address of row r of matrix i.
__device__ __forceinline__ void stmatrix(std::uint32_t address, std::uint32_t a, std::uint32_t b,
                                         std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

// The same of their transposes.
__device__ __forceinline__ void stmatrix_transposed(std::uint32_t address, std::uint32_t a,
                                                    std::uint32_t b, std::uint32_t c,
                                                    std::uint32_t d) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(a), "r"(b), "r"(c), "r"(d)
      : "memory");
}

}  // namespace mxkern::ptx
