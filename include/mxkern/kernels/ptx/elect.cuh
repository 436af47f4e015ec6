// mxkern/kernels/ptx/elect.cuh: one lane of a warp.
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

}  // namespace mxkern::ptx
