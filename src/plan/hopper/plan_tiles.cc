// plan/hopper/plan_tiles.cc: tiles of a product on Hopper, and memory for those that are divided.
#include "plan/hopper/plan_tiles.h"

#include <algorithm>

#include "mxkern/core/math.h"
#include "plan/core_rows.h"
#include "plan/hopper/split_k.h"

namespace mxkern {

TilingSm90 tiling_sm90(const GemmProblem& problem, const Shape& out, bool is_folded,
                       int processors) {
  const auto element = [&](const PlannedOperand& operand) {
    return is_folded ? cuda::fold_facts(operand.scheme).element : cuda::CoreElement::bfloat16;
  };
  const cuda::CoreElement left = element(problem.left), right = element(problem.right);
  const std::int64_t k = problem.right.shape.columns;
  const cuda::TileSm90 tile =
      cuda::tile_sm90(left, right, out.batch, out.rows, out.columns, k, processors);
  const int parts = is_folded ? 1 : cuda::parts_of(problem.left);
  return {tile,
          cuda::work_sm90(tile, right, parts, out.batch, out.rows, out.columns, k, processors)};
}

TilingSm90 transposed_tiling_sm90(const GemmProblem& problem, const Shape& out, int processors) {
  constexpr cuda::CoreElement left = cuda::CoreElement::e4m3, right = cuda::CoreElement::bfloat16;
  const std::int64_t k = problem.right.shape.columns;
  const cuda::TileSm90 tile =
      cuda::tile_sm90(left, right, out.batch, out.columns, out.rows, k, processors);
  return {tile, cuda::work_sm90(tile, right, 1, out.batch, out.columns, out.rows, k, processors)};
}

cuda::FusedDispatchTilesSm90 fused_dispatch_tiling_sm90(const GemmProblem& problem,
                                                        const Shape& out, int processors) {
  const auto element = [](const PlannedOperand& operand) {
    return cuda::fold_facts(operand.scheme).element;
  };
  return cuda::fused_dispatch_tiles_sm90(element(problem.left), element(problem.right), out.rows,
                                         out.columns, problem.right.shape.columns, processors);
}

void place_parts_sm90(const GemmProblem& problem, int processors, CudaGemmPlan& plan) {
  if (plan.path == CudaGemmPath::portable) return;
  if (plan.is_in_one_kernel) {
    plan.row_counters = plan.workspace_bytes;
    plan.workspace_bytes += 256;
  }
  plan.part_sums = plan.workspace_bytes;
  for (const bool is_folded : {true, false}) {
    if (plan.path == (is_folded ? CudaGemmPath::exact : CudaGemmPath::folded)) continue;
    const auto [tile, work] =
        tiling_sm90(problem, multiplied_shape(problem), is_folded, processors);
    plan.part_bytes = std::max(plan.part_bytes, cuda::part_bytes(tile, work));
    plan.part_counters = std::max(plan.part_counters, cuda::part_counters(tile, work));
  }
  plan.workspace_bytes += static_cast<std::size_t>(round_up(plan.part_bytes, 256));
}

}  // namespace mxkern
