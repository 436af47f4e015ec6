// cuda/decode/grouped_instances.cuh: launches of grouped products; each file of cuda/instances/
// compiles them for one scheme and type of tokens.
#pragma once

#include "cuda/decode/launch.h"
#include "cuda/runtime/launch.h"
#include "mxkern/kernels/decode/groups.cuh"
#include "mxkern/kernels/decode/hopper/gemm.cuh"
#include "plan/grouped.h"

namespace mxkern::cuda {

template <class S, bool IsHalf>
void launch_grouped(const char* function, const DecodePlan& plan, dim3 grid,
                    const kernels::DecodeParameters& p, const kernels::RowBoxes& rows,
                    Stream stream) {
  const auto run = [&](auto kernel, int threads, const auto& boxes) {
    launch_clusters(function, kernel, 1, grid, threads, static_cast<std::size_t>(plan.shared_bytes),
                    stream, p, boxes);
  };
  const auto few = [&]<int Tokens>() {
    using K = kernels::DecodeKernel<S, IsHalf, Tokens, 1, false, true>;
    run(kernels::gemm_decode_groups_kernel<K>, K::threads, rows);
  };
  const auto sm90 = [&]<int Tokens, int Warpgroups>() {
    using K = kernels::DecodeSm90Kernel<S, IsHalf, Tokens, Warpgroups, true>;
    run(kernels::gemm_decode_sm90_kernel<K>, K::all_threads, rows.of[0]);
  };
  switch (plan.tokens) {
    case 8: return few.template operator()<8>();
    case 16: return few.template operator()<16>();
    case 32: return sm90.template operator()<32, grouped_warpgroups(32)>();
    case 64: return sm90.template operator()<64, grouped_warpgroups(64)>();
    default: return sm90.template operator()<128, grouped_warpgroups(128)>();
  }
}

#define MXKERN_INSTANTIATE_GROUPED(Type, is_half)                                   \
  template void launch_grouped<Type, is_half>(const char*, const DecodePlan&, dim3, \
                                              const kernels::DecodeParameters&,     \
                                              const kernels::RowBoxes&, Stream);

}  // namespace mxkern::cuda
