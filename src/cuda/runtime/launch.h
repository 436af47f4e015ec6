// cuda/runtime/launch.h: launches of kernels: grids, shared memory, clusters, early starts.
#pragma once

#if defined(__USE_FAST_MATH__)
#error \
    "mxkern is compiled with --use_fast_math, under which kernels round in other ways; leave it out"
#endif

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "cuda/runtime/device_scope.h"
#include "mxkern/core/math.h"

namespace mxkern::cuda {

// Thread blocks in each direction, as many as wanted or as there can be: kernels wrap around in y
// and z.
inline dim3 grid_of(std::int64_t x, std::int64_t y = 1, std::int64_t z = 1) {
  constexpr std::int64_t largest = 65535;
  return dim3(static_cast<unsigned>(std::min<std::int64_t>(x, 0x7FFFFFFF)),
              static_cast<unsigned>(std::min(y, largest)),
              static_cast<unsigned>(std::min(z, largest)));
}

// Whether a kernel may start while the one ahead of it in the stream is still at work.
enum class Start : std::uint8_t {
  behind,  // no
  early,  // yes, from 9.0 on: it calls wait_for_kernels_ahead before it touches what they may write
};

inline bool can_start_early(const char* function) {
  return attribute_of(function, cudaDevAttrComputeCapabilityMajor) >= 9;
}

// Lets a kernel have this much shared memory of its own. Threads launch the same kernel with more
// and with less at the same time, so what it may have only ever grows.
inline void reserve_shared(const char* function, const void* kernel, std::size_t bytes) {
  constexpr std::size_t without_asking = 48 * 1024;
  if (bytes <= without_asking) return;
  const auto wanted = static_cast<int>(bytes);
  const auto has = [&] {
    cudaFuncAttributes attributes = {};
    check_cuda(cudaFuncGetAttributes(&attributes, kernel), function, "look up a kernel");
    return attributes.maxDynamicSharedSizeBytes >= wanted;
  };
  if (has()) return;
  static std::mutex raising;
  const std::lock_guard lock(raising);
  if (has()) return;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, wanted),
             function, "reserve shared memory");
}

inline cudaLaunchAttribute early_start() {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

// Launches kernel(arguments...).
template <Start start = Start::behind, class... Parameters, class... Arguments>
void launch(const char* function, void (*kernel)(Parameters...), dim3 grid, int threads,
            std::size_t shared_bytes, Stream stream, const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  reserve_shared(function, reinterpret_cast<const void*>(kernel), shared_bytes);
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = handle_of(stream);
  cudaLaunchAttribute attribute = early_start();
  if (start == Start::early && can_start_early(function)) {
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  check_cuda(cudaLaunchKernelEx(&config, kernel, arguments...), function, "launch a kernel");
}

// Launches kernel(arguments...) in clusters of so many thread blocks along x, which may start
// early: on devices of which can_start_early is true.
template <class... Parameters, class... Arguments>
void launch_clusters(const char* function, void (*kernel)(Parameters...), int cluster, dim3 grid,
                     int threads, std::size_t shared_bytes, Stream stream,
                     const Arguments&... arguments) {
  reserve_shared(function, reinterpret_cast<const void*>(kernel), shared_bytes);
  cudaLaunchAttribute attributes[2] = {early_start()};
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = handle_of(stream);
  config.attrs = attributes;
  config.numAttrs = 2;
  check_cuda(cudaLaunchKernelEx(&config, kernel, arguments...), function, "launch clusters");
}

}  // namespace mxkern::cuda
