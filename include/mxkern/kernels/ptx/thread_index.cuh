// mxkern/kernels/ptx/thread_index.cuh: which thread of its block this is.
#pragma once

namespace mxkern::ptx {

// threadIdx.x, read anew: what is worked out from it takes no registers before.
__device__ __forceinline__ int thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

}  // namespace mxkern::ptx
