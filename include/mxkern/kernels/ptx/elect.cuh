// mxkern/kernels/ptx/elect.cuh: one lane of a warp, and which thread this is.
#pragma once

#include <cstdint>

namespace mxkern::ptx {

// Whether this lane is the one of the warp that is to do what one does. Unlike with a comparison
// the compiler knows then that there is only one.
__device__ __forceinline__ bool elect() {
  std::uint32_t is_elected;
  asm volatile(
      "{\n.reg .pred elected;\nelect.sync _|elected, 0xFFFFFFFF;\nselp.b32 %0, 1, 0, elected;\n}\n"
      : "=r"(is_elected));
  return is_elected != 0;
}

// threadIdx.x, read anew: what is worked out from it takes no registers before.
__device__ __forceinline__ int thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

}  // namespace mxkern::ptx
