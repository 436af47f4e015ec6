// cuda/gemm/hopper/fused_dispatch_instances.cuh: what an instance file of the Hopper product that
// is folded or exact instantiates.
#pragma once

#include <algorithm>

#include "cuda/operands/expand_operand.h"
#include "cuda/gemm/hopper/instances.cuh"
#include "mxkern/kernels/gemm/hopper/fused_dispatch.cuh"

namespace mxkern::cuda {

template <class Either>
void launch_fused_dispatch(const FusedDispatchProductSm90& product) {
  using Folded = Either::Folded;
  using Exact = Either::Exact;
  const ProductSm90 &folded = product.folded, &exact = product.exact;
  kernels::GemmSm90Parameters narrow = parameters_of<Folded>(folded);
  if constexpr (Folded::has_late_rows) put_late_rows<Folded>(folded, narrow);
  const kernels::GemmSm90Parameters wide = parameters_of<Exact>(exact);
  const auto rows = [&](int side) {
    return kernels::RowsToExpand{expand_operand(folded.function, product.tasks[side]),
                                 product.progress + 2 * side, expanded_exponent};
  };
  launch_blocks<Folded>(folded, kernels::gemm_sm90_fused_dispatch<Either>,
                        std::max(folded.work.clusters, exact.work.clusters),
                        left_map<Folded>(folded, narrow), right_map<Folded>(folded),
                        left_map<Exact>(exact, wide), right_map<Exact>(exact),
                        out_map<Folded>(folded, narrow), narrow, wide, rows(0), rows(1));
}

// With the tile that product.folded names.
template <class Left, class Right>
void launch_fused_dispatch_sm90(const FusedDispatchProductSm90& product) {
  launch_tile<
      kernels::FusedDispatchSm90<Left, Right, 256>, kernels::FusedDispatchSm90<Left, Right, 192>,
      kernels::FusedDispatchSm90<Left, Right, 128>, kernels::FusedDispatchSm90<Left, Right, 64>>(
      product.folded.function, product.folded.tile,
      [&]<class Either>(const Either*) { launch_fused_dispatch<Either>(product); });
}

}  // namespace mxkern::cuda
