// mxkern/kernels/ptx/barrier.cuh: barriers of some warps of a thread block.
#pragma once

namespace mxkern::ptx {

// Waits until all of so many threads, whole warps, have come. Barrier 0 is that of __syncthreads.
template <int Barrier, int Threads>
__device__ __forceinline__ void barrier_sync() {
  static_assert(Barrier > 0 && Barrier < 16 && Threads % 32 == 0);
  asm volatile("bar.sync %0, %1;" ::"n"(Barrier), "n"(Threads) : "memory");
}

// The same where which barrier it is, and of how many, is known at run time.
__device__ __forceinline__ void barrier_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace mxkern::ptx
