// mxkern/kernels/device/dependents.cuh: kernels of one stream that overlap. Nothing below sm_90.
#pragma once

#include "mxkern/kernels/device/follows.h"

namespace mxkern::kernels {

// The kernel behind this one in the stream, if it is launched so, may start once all thread blocks
// have called this or are over. Called after wait_for_kernels_ahead, all that lies ahead of this
// kernel is complete when the next one starts; a kernel that calls it before says what is.
__device__ __forceinline__ void let_dependents_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernels ahead are over, and what they wrote is there.
__device__ __forceinline__ void wait_for_kernels_ahead() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The same where `waits`, without a branch.
__device__ __forceinline__ void wait_for_kernels_ahead(bool waits) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .pred waits;\nsetp.ne.u32 waits, %0, 0;\n@waits griddepcontrol.wait;\n}\n" ::"r"(
          static_cast<unsigned>(waits))
      : "memory");
#endif
}

// Whether a thread block is among the first `count` of a grid: those that may start while the
// kernel ahead still runs, and have time to fill the second-level cache with what they will read.
// What that kernel has yet to write there is none the worse for it: all multiprocessors share the
// cache.
__device__ __forceinline__ bool is_one_of_the_first(int count) {
  return blockIdx.z == 0 && blockIdx.y * gridDim.x + blockIdx.x < static_cast<unsigned>(count);
}

// Before all work. A kernel beside another one may start when that has called let_dependents_start,
// when all kernels ahead of both are over.
__device__ __forceinline__ void wait_at_start(Follows follows) {
  wait_for_kernels_ahead(follows == Follows::behind);
  let_dependents_start();
}

__device__ __forceinline__ bool is_last_of_grid() {
  return blockIdx.x == gridDim.x - 1 && blockIdx.y == gridDim.y - 1 && blockIdx.z == gridDim.z - 1;
}

// After all work, by the last thread block at least: whoever waits for this kernel then has waited
// for the one beside it too. That thread block alone waits, so that others leave their places to
// those behind them.
__device__ __forceinline__ void wait_at_end(Follows follows) {
  wait_for_kernels_ahead(follows == Follows::beside && is_last_of_grid());
}

// Before all work, instead of the two, where thread blocks do not stay: the last one starts late
// anyway, and waits then.
__device__ __forceinline__ void wait_once(Follows follows) {
  wait_for_kernels_ahead(follows == Follows::behind || is_last_of_grid());
  let_dependents_start();
}

}  // namespace mxkern::kernels
