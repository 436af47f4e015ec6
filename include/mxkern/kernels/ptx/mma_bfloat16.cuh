// mxkern/kernels/ptx/mma_bfloat16.cuh: a warp's product of bfloat16 fragments, from sm_80 on.
#pragma once

#include <cstdint>

namespace mxkern::ptx {

// sums[16 x 8] += left[16 x 16] . right[8 x 16]^T.
__device__ __forceinline__ void multiply_add(float (&sums)[4], const std::uint32_t (&left)[4],
                                             std::uint32_t right_low, std::uint32_t right_high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_low), "r"(right_high));
}

}  // namespace mxkern::ptx
