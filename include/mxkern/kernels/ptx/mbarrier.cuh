// mxkern/kernels/ptx/mbarrier.cuh: barriers in shared memory that count threads and bytes.
#pragma once

#include <cstdint>

namespace mxkern::ptx {

// Barriers and boxes are named by their addresses in the block's shared memory: 32 bits, and sums
// with constants cost nothing.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void mbarrier_init(std::uint32_t barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

// Makes initialized barriers visible to the copy engine and to the other blocks of the cluster.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One arrival, and a promise of bytes that a copy will bring.
__device__ __forceinline__ void mbarrier_expect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void mbarrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// The address of the same place in another thread block of the cluster.
__device__ __forceinline__ std::uint32_t address_in_block(std::uint32_t address,
                                                          std::uint32_t block) {
  std::uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(block));
  return remote;
}

// Arrives at a barrier of any block of the cluster, if told to. Says only that this thread's reads
// are over: a release at cluster scope would be a fence of all memory, at every step.
__device__ __forceinline__ void mbarrier_arrive_remote(std::uint32_t remote, bool condition) {
  asm volatile(
      "{\n"
      ".reg .pred condition;\n"
      "setp.ne.b32 condition, %1, 0;\n"
      "@condition mbarrier.arrive.shared::cluster.b64 _, [%0];\n"
      "}\n" ::"r"(remote),
      "r"(static_cast<int>(condition))
      : "memory");
}

// Whether the phase with this parity has completed.
__device__ __forceinline__ bool mbarrier_test(std::uint32_t barrier, std::uint32_t parity) {
  int done;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.b32 %0, 1, 0, done;\n"
      "}\n"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// Waits until the phase with this parity has completed.
__device__ __forceinline__ void mbarrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra complete;\n"
      "bra again;\n"
      "complete:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// The same, if it had not when it was tested.
__device__ __forceinline__ void mbarrier_wait_unless(bool has_completed, std::uint32_t barrier,
                                                     std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "setp.ne.b32 done, %2, 0;\n"
      "@done bra complete;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra complete;\n"
      "bra again;\n"
      "complete:\n"
      "}\n" ::"r"(barrier),
      "r"(parity), "r"(static_cast<int>(has_completed))
      : "memory");
}

}  // namespace mxkern::ptx
