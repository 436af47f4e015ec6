// cuda/instances/multiply_sm90_either.cu: the Hopper product of folded E4M3, or of the same
// operands expanded, whichever the device finds to be right.
#include "mxkern/kernels/gemm_sm90_either.cuh"

#include <algorithm>

#include "cuda/multiply_sm90_instances.cuh"

namespace mxkern::cuda {

void launch_either_sm90(const ProductSm90& folded, const ProductSm90& exact) {
  launch_tile<kernels::EitherSm90<256>, kernels::EitherSm90<192>, kernels::EitherSm90<128>,
              kernels::EitherSm90<64>>(
      folded.function, folded.tile, [&]<class Either>(const Either*) {
        using Folded = Either::Folded;
        using Exact = Either::Exact;
        kernels::GemmSm90Parameters narrow = parameters_of<Folded>(folded);
        if constexpr (Folded::has_late_rows) put_late_rows<Folded>(folded, narrow);
        const kernels::GemmSm90Parameters wide = parameters_of<Exact>(exact);
        const kernels::ExpandedInside expanded = {
            {late_rows(exact.function, exact.left, Exact::rows),
             late_rows(exact.function, exact.right, Exact::columns)}};
        launch_blocks<Folded>(folded, kernels::gemm_sm90_either<Folded::columns>,
                              std::max(narrow.work.clusters, wide.work.clusters),
                              left_map<Folded>(folded, narrow), right_map<Folded>(folded),
                              left_map<Exact>(exact, wide), right_map<Exact>(exact),
                              out_map<Folded>(folded, narrow), narrow, wide, expanded);
      });
}

}  // namespace mxkern::cuda
