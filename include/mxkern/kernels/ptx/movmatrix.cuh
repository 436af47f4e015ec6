// mxkern/kernels/ptx/movmatrix.cuh: a matrix that lies in the registers of a warp, turned there.
#pragma once

#include <cstdint>

namespace mxkern::ptx {

// Of an 8 x 8 matrix of 16-bit elements lane l has row l / 4, columns l % 4 * 2 and the next one;
// then the same of the transposed one.
__device__ __forceinline__ std::uint32_t turn_matrix(std::uint32_t pair) {
  std::uint32_t turned;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
  return turned;
}

}  // namespace mxkern::ptx
