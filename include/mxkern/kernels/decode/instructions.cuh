// mxkern/kernels/decode/instructions.cuh: the instructions of few-token products: bulk copies,
// barriers, mma.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/kernels/ptx/mbarrier.cuh"

namespace mxkern::kernels::few {

// Whether the arrival was the last that the phase waited for.
__device__ __forceinline__ bool arrive_last(std::uint32_t barrier) {
  std::uint32_t pending;  // before it
  asm volatile(
      "{\n"
      ".reg .b64 state;\n"
      "mbarrier.arrive.shared::cta.b64 state, [%1];\n"
      "mbarrier.pending_count.b64 %0, state;\n"
      "}\n"
      : "=r"(pending)
      : "r"(barrier)
      : "memory");
  return pending == 1;
}

// For what is read once: it leaves the L2 cache first.
__device__ __forceinline__ std::uint64_t evict_first_policy() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Addresses and size are multiples of 16.
__device__ __forceinline__ void copy_bulk(std::uint32_t to, const void* from, std::uint32_t bytes,
                                          std::uint32_t barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

// Orders nothing: says only that this thread block has started.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// To the shared memory of a thread block of the cluster, whose barrier hears that 16 bytes have
// come: both are addresses there. No fence is needed.
__device__ __forceinline__ void send(std::uint32_t there, std::uint32_t its_barrier,
                                     const uint4& v) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(there),
      "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(its_barrier)
      : "memory");
}

// To the same place in the shared memory of another thread block.
__device__ __forceinline__ void send_cluster(std::uint32_t address, std::uint32_t barrier,
                                             std::uint32_t rank, const float4& v) {
  send(ptx::address_in_block(address, rank), ptx::address_in_block(barrier, rank),
       uint4{bits_of(v.x), bits_of(v.y), bits_of(v.z), bits_of(v.w)});
}

// Keeps a value in a register: the compiler would compute it again, where it is needed.
__device__ __forceinline__ int kept(int value) {
  asm volatile("" : "+r"(value));
  return value;
}
template <class T>
__device__ __forceinline__ T* kept(T* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}

// Of lane 0, in all lanes, and as a value of which the compiler does not know more: so it stays in
// a uniform register.
__device__ __forceinline__ std::uint32_t same(std::uint32_t value) {
  return __shfl_sync(0xFFFFFFFFu, value, 0);
}
__device__ __forceinline__ const std::uint8_t* same(const std::uint8_t* pointer) {
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  const std::uint64_t low = same(static_cast<std::uint32_t>(address));
  const std::uint64_t high = same(static_cast<std::uint32_t>(address >> 32));
  return reinterpret_cast<const std::uint8_t*>(high << 32 | low);
}

template <bool IsHalf>
__device__ __forceinline__ void multiply(float (&d)[4], const std::uint32_t (&a)[4],
                                         std::uint32_t b0, std::uint32_t b1, const float (&c)[4]) {
  if constexpr (IsHalf) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
  }
}

}  // namespace mxkern::kernels::few
