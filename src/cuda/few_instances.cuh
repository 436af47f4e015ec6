// cuda/few_instances.cuh: launches of the few-token kernels; each file of cuda/instances/ compiles
// them for one scheme.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/few_launch.h"
#include "cuda/launch.h"
#include "cuda/launch_clusters.cuh"
#include "mxkern/kernels/gemm_few.cuh"
#include "mxkern/kernels/reorder_weights.cuh"

namespace mxkern::cuda {

template <class S>
void launch_few(const char* function, DType x_dtype, const FewPlan& plan, bool overlaps, dim3 grid,
                const kernels::FewParameters& p, Stream stream) {
  const auto with_tokens = [&](auto is_half) {
    const auto run = [&](auto tokens) {
      const auto run_tiles = [&](auto warp_tiles) {
        using K = kernels::FewKernel<S, is_half(), tokens(), warp_tiles()>;
        launch_clusters(function, kernels::gemm_few_kernel<K>, K::threads, plan, overlaps, grid,
                        stream, p);
      };
      constexpr kernels::FewShape shape{S::Format::bits, S::block, tokens()};
      if constexpr (shape.most_warp_tiles() == 2) {
        if (plan.warp_tiles == 2) return run_tiles(std::integral_constant<int, 2>{});
      }
      run_tiles(std::integral_constant<int, 1>{});
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
