// cuda/few_sm90_instances.cuh: launches of Hopper's kernels for tens of tokens; each file of
// cuda/instances/ compiles them for one scheme and type of tokens.
#pragma once

#include "cuda/few_launch.h"
#include "cuda/launch_clusters.cuh"
#include "mxkern/kernels/gemm_few_sm90.cuh"
#include "mxkern/kernels/gemm_staged_sm90.cuh"

namespace mxkern::cuda {

template <class S, bool IsHalf>
void launch_few_sm90(const char* function, const FewPlan& plan, bool overlaps, dim3 grid,
                     const kernels::FewParameters& p, const CUtensorMap& tokens, Stream stream) {
  const auto run = [&]<int Tokens>() {
    using K = kernels::FewSm90Kernel<S, IsHalf, Tokens>;
    launch_clusters(function, kernels::gemm_few_sm90_kernel<K>, K::all_threads, plan, overlaps,
                    grid, stream, p, tokens);
  };
  // Plans say so for bfloat16 and 4 bits alone.
  if constexpr (!IsHalf && S::Format::bits == 4) {
    const auto run_staged = [&]<int RowTiles>() {
      using K = kernels::StagedSm90Kernel<S, RowTiles>;
      launch_clusters(function, kernels::gemm_staged_sm90_kernel<K>, K::all_threads, plan, overlaps,
                      grid, stream, p, tokens);
    };
    if (plan.is_staged) {
      plan.row_tiles == 7 ? run_staged.template operator()<7>()
                          : run_staged.template operator()<8>();
      return;
    }
  }
  switch (plan.tokens) {
    case 32: return run.template operator()<32>();
    case 64: return run.template operator()<64>();
    case 96: return run.template operator()<96>();
    case 128: return run.template operator()<128>();
    case 192: return run.template operator()<192>();
    default: return run.template operator()<256>();
  }
}

#define MXKERN_INSTANTIATE_FEW_SM90(Type, is_half)                                                \
  template void launch_few_sm90<Type, is_half>(const char*, const FewPlan&, bool, dim3,           \
                                               const kernels::FewParameters&, const CUtensorMap&, \
                                               Stream);

}  // namespace mxkern::cuda
