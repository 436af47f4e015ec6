// cuda/instances/decode_folded.cu: folded rows times reordered weights of MXFP4 on Hopper.
#include "cuda/decode/launch.h"
#include "cuda/runtime/launch.h"
#include "mxkern/kernels/decode/hopper/gemm.cuh"
#include "plan/decode/plan.h"

namespace mxkern::cuda {
namespace {

template <int Tokens, int Warpgroups, bool IsGrouped>
void run(const char* function, const DecodePlan& plan, dim3 grid,
         const kernels::DecodeParameters& p, const CUtensorMap& tokens, Stream stream) {
  using K = kernels::DecodeSm90Kernel<MxFp4, true, Tokens, Warpgroups, IsGrouped, true>;
  launch_clusters(function, kernels::gemm_decode_sm90_kernel<K>, 1 << plan.log2_ranks, grid,
                  K::all_threads, static_cast<std::size_t>(plan.shared_bytes), stream, p, tokens);
}

template <bool IsGrouped>
void launch(const char* function, const DecodePlan& plan, dim3 grid,
            const kernels::DecodeParameters& p, const CUtensorMap& tokens, Stream stream) {
  const auto go = [&]<int Tokens>() {
    run<Tokens, folded_warpgroups(Tokens), IsGrouped>(function, plan, grid, p, tokens, stream);
  };
  switch (plan.tokens) {
    case 8: return go.template operator()<8>();
    case 16: return go.template operator()<16>();
    case 32: return go.template operator()<32>();
    case 64: return go.template operator()<64>();
    default: return go.template operator()<128>();
  }
}

}  // namespace

void launch_decode_folded(const char* function, const DecodePlan& plan, dim3 grid,
                          const kernels::DecodeParameters& p, const CUtensorMap& tokens,
                          Stream stream) {
  launch<false>(function, plan, grid, p, tokens, stream);
}

void launch_grouped_folded(const char* function, const DecodePlan& plan, dim3 grid,
                           const kernels::DecodeParameters& p, const CUtensorMap& tokens,
                           Stream stream) {
  launch<true>(function, plan, grid, p, tokens, stream);
}

}  // namespace mxkern::cuda
