// cuda/decode/instances_hopper.cuh: launches of Hopper's kernel for tens of tokens; each file of
// cuda/instances/ compiles it for one scheme and type of tokens.
#pragma once

#include "cuda/decode/launch.h"
#include "cuda/runtime/launch.h"
#include "mxkern/kernels/decode/hopper/gemm.cuh"

namespace mxkern::cuda {

template <class S, bool IsHalf>
void launch_decode_sm90(const char* function, const DecodePlan& plan, dim3 grid,
                        const kernels::DecodeParameters& p, const CUtensorMap& tokens,
                        Stream stream) {
  using Shape = kernels::DecodeSm90Shape;
  const auto run = [&]<int Tokens, int Warpgroups>() {
    using K = kernels::DecodeSm90Kernel<S, IsHalf, Tokens, Warpgroups>;
    launch_clusters(function, kernels::gemm_decode_sm90_kernel<K>, 1 << plan.log2_ranks, grid,
                    K::all_threads, static_cast<std::size_t>(plan.shared_bytes), stream, p, tokens);
  };
  const bool has_four = plan.row_tiles << plan.log2_parts == 4 * Shape::group_tiles;
  switch (plan.tokens) {
    case 32: return has_four ? run.template operator()<32, 4>() : run.template operator()<32, 2>();
    case 64: return has_four ? run.template operator()<64, 4>() : run.template operator()<64, 2>();
    case 96: return has_four ? run.template operator()<96, 4>() : run.template operator()<96, 2>();
    case 128:
      return has_four ? run.template operator()<128, 4>() : run.template operator()<128, 2>();
    case 192: return run.template operator()<192, 2>();
    default: return run.template operator()<256, 2>();
  }
}

#define MXKERN_INSTANTIATE_DECODE_SM90(Type, is_half)                                   \
  template void launch_decode_sm90<Type, is_half>(const char*, const DecodePlan&, dim3, \
                                                  const kernels::DecodeParameters&,     \
                                                  const CUtensorMap&, Stream);

}  // namespace mxkern::cuda
