// mxkern/kernels/device/cluster_max.cuh: a maximum over the thread blocks of one cluster. From
// sm_90 on.
#pragma once

#include <cstdint>

namespace mxkern::kernels {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define MXKERN_HAS_CLUSTERS 1
#else
#define MXKERN_HAS_CLUSTERS 0
#endif

__device__ __forceinline__ std::uint32_t rank_in_cluster() {
  std::uint32_t rank = 0;
#if MXKERN_HAS_CLUSTERS
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}

// All threads of all thread blocks of the cluster. Their shared memory is there after the first
// one.
__device__ __forceinline__ void synchronize_cluster() {
#if MXKERN_HAS_CLUSTERS
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
#endif
}

// To the same place in the shared memory of the first thread block.
__device__ __forceinline__ void store_in_first(std::uint32_t* place, std::uint32_t value) {
#if MXKERN_HAS_CLUSTERS
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(place));
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, 0;\n"
      "st.shared::cluster.u32 [there], %1;\n"
      "}" ::"r"(address),
      "r"(value)
      : "memory");
#else
  *place = value;
#endif
}

}  // namespace mxkern::kernels
