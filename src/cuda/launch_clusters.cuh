// cuda/launch_clusters.cuh: launches a few-token kernel in clusters that divide K.
#pragma once

#include "cuda/launch.h"
#include "plan_few.h"

namespace mxkern::cuda {

// In clusters of the plan's ranks along x. With `overlaps`, it may start before the kernel ahead of
// it in the stream is over, and waits for it where it must.
template <class... Parameters, class... Arguments>
void launch_clusters(const char* function, void (*kernel)(Parameters...), int threads,
                     const FewPlan& plan, bool overlaps, dim3 grid, Stream stream,
                     const Arguments&... arguments) {
  check_cuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes),
      function, "reserve shared memory");
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = 1u << plan.log2_ranks;
  attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(plan.shared_bytes);
  config.stream = handle_of(stream);
  config.attrs = attributes;
  config.numAttrs = overlaps ? 2 : 1;
  check_cuda(cudaLaunchKernelEx(&config, kernel, arguments...), function, "launch a kernel");
}

}  // namespace mxkern::cuda
