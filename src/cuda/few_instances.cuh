// cuda/few_instances.cuh: launches of the few-token kernels; each file of cuda/instances/ compiles
// them for one scheme.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/few_launch.h"
#include "cuda/launch.h"
#include "mxkern/kernels/gemm_few.cuh"
#include "mxkern/kernels/reorder_weights.cuh"

namespace mxkern::cuda {

// In clusters of `ranks` along x. With `overlaps`, it may start before the kernel ahead of it in
// the stream is over, and waits for it where it must.
template <class K>
void launch_clusters(const char* function, const FewPlan& plan, bool overlaps, dim3 grid,
                     const kernels::FewParameters& p, Stream stream) {
  const auto kernel = kernels::gemm_few_kernel<K>;
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
  config.blockDim = dim3(K::threads);
  config.dynamicSmemBytes = static_cast<std::size_t>(plan.shared_bytes);
  config.stream = handle_of(stream);
  config.attrs = attributes;
  config.numAttrs = overlaps ? 2 : 1;
  check_cuda(cudaLaunchKernelEx(&config, kernel, p), function, "launch a kernel");
}

template <class S>
void launch_few(const char* function, DType x_dtype, const FewPlan& plan, bool overlaps, dim3 grid,
                const kernels::FewParameters& p, Stream stream) {
  const auto with_tokens = [&](auto is_half) {
    const auto run = [&](auto tokens) {
      launch_clusters<kernels::FewKernel<S, is_half(), tokens()>>(function, plan, overlaps, grid, p,
                                                                  stream);
    };
    switch (plan.tokens) {
      case 8: return run(std::integral_constant<int, 8>{});
      case 16: return run(std::integral_constant<int, 16>{});
      case 32: return run(std::integral_constant<int, 32>{});
      default: return run(std::integral_constant<int, 64>{});
    }
  };
  if (x_dtype == DType::float16) {
    with_tokens(std::true_type{});
  } else {
    with_tokens(std::false_type{});
  }
}

template <class S>
void launch_reorder(const char* function, const kernels::ReorderParameters& p, dim3 grid,
                    Stream stream) {
  launch(function, kernels::reorder_kernel<S>, grid, kernels::reorder_threads, 0, stream, p);
}

#define MXKERN_INSTANTIATE_FEW(Type)                                             \
  template void launch_few<Type>(const char*, DType, const FewPlan&, bool, dim3, \
                                 const kernels::FewParameters&, Stream);         \
  template void launch_reorder<Type>(const char*, const kernels::ReorderParameters&, dim3, Stream);

}  // namespace mxkern::cuda
