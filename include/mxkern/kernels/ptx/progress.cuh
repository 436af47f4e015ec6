// mxkern/kernels/ptx/progress.cuh: counters in memory by which thread blocks tell of what they
// wrote.
#pragma once

#include <cstdint>

namespace mxkern::ptx {

// Who sees the counter with load_acquire sees what this thread wrote before, and what it saw.
__device__ __forceinline__ void add_release(std::uint32_t* counter, std::uint32_t count = 1) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter), "r"(count) : "memory");
}

// What the counter was; both of the above and of the below.
__device__ __forceinline__ std::uint32_t add_one(std::uint32_t* counter) {
  std::uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(counter)
               : "memory");
  return before;
}

__device__ __forceinline__ std::uint32_t load_acquire(const std::uint32_t* counter) {
  std::uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

}  // namespace mxkern::ptx
