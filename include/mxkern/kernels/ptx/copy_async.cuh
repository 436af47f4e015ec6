// mxkern/kernels/ptx/copy_async.cuh: copies from global to shared memory that threads do not wait
// for.
#pragma once

#include <cstdint>

namespace mxkern::ptx {

// 16 bytes, of which the first `bytes` are read and the others become zeros. Both addresses are
// multiples of 16.
__device__ __forceinline__ void copy_async_16(std::uint32_t shared_address, const void* global,
                                              int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address), "l"(global),
               "r"(bytes)
               : "memory");
}

// The same under a policy of the second-level cache.
__device__ __forceinline__ void copy_async_16(std::uint32_t shared_address, const void* global,
                                              int bytes, std::uint64_t policy) {
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared_address),
      "l"(global), "r"(bytes), "l"(policy)
      : "memory");
}

// 4 bytes, in the same way.
__device__ __forceinline__ void copy_async_4(std::uint32_t shared_address, const void* global,
                                             int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address), "l"(global),
               "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until all but the latest `Pending` groups of this thread are there.
template <int Pending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

}  // namespace mxkern::ptx
