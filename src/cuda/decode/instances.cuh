// cuda/decode/instances.cuh: launches of the few-token kernels; each file of cuda/instances/
// compiles them for one scheme.
#pragma once

#include "cuda/decode/launch.h"
#include "cuda/runtime/launch.h"
#include "mxkern/kernels/decode/gemm.cuh"
#include "mxkern/kernels/operands/reorder_weights.cuh"

namespace mxkern::cuda {

// A launch of the kernel that a plan asks for.
struct DecodeLaunch {
  const char* function;
  const DecodePlan& plan;
  dim3 grid;
  const kernels::DecodeParameters& p;
  const CUtensorMap& tokens;
  Stream stream;

  template <class K>
  void run() const {
    launch_clusters(function, kernels::gemm_decode_kernel<K>, 1 << plan.log2_ranks, grid,
                    K::threads, static_cast<std::size_t>(plan.shared_bytes), stream, p, tokens);
  }

  template <class S, bool IsHalf, int Tokens, int WarpTiles>
  void run_tiles() const {
    constexpr kernels::DecodeShape shape{S::Format::bits, S::block, Tokens};
    if constexpr (shape.may_keep(WarpTiles)) {
      if (plan.x_stages == 0)
        return run<kernels::DecodeKernel<S, IsHalf, Tokens, WarpTiles, false>>();
    }
    run<kernels::DecodeKernel<S, IsHalf, Tokens, WarpTiles, true>>();
  }

  template <class S, bool IsHalf, int Tokens>
  void run_tokens() const {
    constexpr kernels::DecodeShape shape{S::Format::bits, S::block, Tokens};
    if constexpr (shape.most_warp_tiles() == 2) {
      if (plan.warp_tiles == 2) return run_tiles<S, IsHalf, Tokens, 2>();
    }
    run_tiles<S, IsHalf, Tokens, 1>();
  }

  template <class S, bool IsHalf>
  void run_all() const {
    switch (plan.tokens) {
      case 8: return run_tokens<S, IsHalf, 8>();
      case 16: return run_tokens<S, IsHalf, 16>();
      case 32: return run_tokens<S, IsHalf, 32>();
      default: return run_tokens<S, IsHalf, 64>();
    }
  }
};

template <class S>
void launch_decode(const char* function, DType x_dtype, const DecodePlan& plan, dim3 grid,
                   const kernels::DecodeParameters& p, const CUtensorMap& tokens, Stream stream) {
  const DecodeLaunch launch{function, plan, grid, p, tokens, stream};
  x_dtype == DType::float16 ? launch.run_all<S, true>() : launch.run_all<S, false>();
}

template <class S>
void launch_reorder(const char* function, const kernels::ReorderParameters& p, dim3 grid,
                    Stream stream) {
  launch(function, kernels::reorder_kernel<S>, grid, kernels::reorder_threads, 0, stream, p);
}

#define MXKERN_INSTANTIATE_DECODE(Type)                                                            \
  template void launch_decode<Type>(const char*, DType, const DecodePlan&, dim3,                   \
                                    const kernels::DecodeParameters&, const CUtensorMap&, Stream); \
  template void launch_reorder<Type>(const char*, const kernels::ReorderParameters&, dim3, Stream);

}  // namespace mxkern::cuda
