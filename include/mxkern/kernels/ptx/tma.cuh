// mxkern/kernels/ptx/tma.cuh: boxes of tensors between global and shared memory, by the copy
// engine.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace mxkern::ptx {

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Loads the box at (x, y, z, w); its bytes count at the barrier.
__device__ __forceinline__ void tma_load(std::uint32_t to, const CUtensorMap& map,
                                         std::uint32_t barrier, int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// The same to every thread block of the cluster whose bit is set in `blocks`, at the same place and
// the same barrier in each.
__device__ __forceinline__ void tma_load_multicast(std::uint32_t to, const CUtensorMap& map,
                                                   std::uint32_t barrier, std::uint16_t blocks,
                                                   int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(to),
      "l"(&map), "r"(barrier), "h"(blocks), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// Stores a box; what lies outside the tensor is left out.
__device__ __forceinline__ void tma_store(const CUtensorMap& map, std::uint32_t from, int x, int y,
                                          int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          &map),
      "r"(from), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

__device__ __forceinline__ void tma_commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until at most Pending of this thread's committed groups still read shared memory.
template <int Pending>
__device__ __forceinline__ void tma_wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

// What threads wrote to memory before, the copy engine of any multiprocessor reads after. Who
// writes calls this before it tells, and who copies after it has heard.
__device__ __forceinline__ void fence_global_for_tma() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// What threads wrote to shared memory before, the copy engine and the tensor cores read after.
__device__ __forceinline__ void fence_shared_for_tma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace mxkern::ptx
