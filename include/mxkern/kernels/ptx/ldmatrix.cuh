// mxkern/kernels/ptx/ldmatrix.cuh: matrices from shared memory to the fragments of a warp.
#pragma once

#include <cstdint>

namespace mxkern::ptx {

// Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(std::uint32_t (&words)[4],
                                              std::uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address)
               : "memory");
}

}  // namespace mxkern::ptx
