// plan/gemm_cuda_words.cc: the plan of a product on a CUDA device, in words.
#include <string>

#include "mxkern/core/error.h"
#include "mxkern/tensor/decode_layout.h"
#include "plan/words.h"
#include "plan/gemm_cuda.h"
#include "plan/hopper/plan_tiles.h"
#include "plan/portable_tile.h"

namespace mxkern {
namespace {

std::string describe_side(const PlannedOperand& operand, const SidePlan& side, CudaGemmPath path) {
  const std::string kind = kind_of(operand);
  switch (path) {
    case CudaGemmPath::nothing: return kind;
    case CudaGemmPath::few_tokens:
      return kind + (side.expands       ? ", expanded to bfloat16 in the call"
                     : side.is_prepared ? concatenate(", prepared as ", name_of(operand.form))
                                        : std::string(", read as it lies"));
    case CudaGemmPath::blackwell: return kind + ", read as it lies";
    case CudaGemmPath::few_folded:
    case CudaGemmPath::folded:
    case CudaGemmPath::exact:
    case CudaGemmPath::portable:
    case CudaGemmPath::folded_or_exact: break;
  }
  const char* only = path == CudaGemmPath::folded_or_exact ? " if rows are too wide" : "";
  const std::string prepared = std::string("prepared as ") + name_of(operand.form);
  std::string text = kind;
  if (side.is_prepared) text += ", " + prepared;
  std::string late;
  if (side.first_rows > 0) {
    late = concatenate(", from row ", side.first_rows, " on while the product is under way");
  }
  if (side.first_columns > 0) {
    late += concatenate(", and the first rows from column ", side.first_columns, " on");
  }
  if (side.folds) text += ", folded in the call" + late;
  if (side.expands) {
    text += std::string(", expanded to bfloat16 in the call") + only + (side.folds ? "" : late);
  }
  if (side.decodes) text += std::string(", decoded in registers") + only;
  if (!side.is_prepared && !side.folds && !side.expands && !side.decodes)
    text += ", read as it lies";
  return text;
}

std::string describe_tiles(const TilingSm90& tiling, bool is_folded) {
  const auto& [tile, work] = tiling;
  std::string text = describe_tile(tile, tile.rows, is_folded);
  if (work.divided() > 0) {
    text += concatenate(", the last ", work.divided() * tile.cluster, " of ",
                        work.tiles * tile.cluster, " tiles divided along K");
  }
  return text;
}

std::string describe_tiles(const GemmProblem& problem, bool is_folded, int processors) {
  return describe_tiles(tiling_sm90(problem, multiplied_shape(problem), is_folded, processors),
                        is_folded);
}

std::string describe_fused_dispatch(const CudaGemmPlan& plan, const GemmProblem& problem,
                                    int processors) {
  const std::string folded = describe_tiles(problem, true, processors) + "; or ";
  if (!plan.is_in_one_kernel) return folded + describe_tiles(problem, false, processors);
  const auto tiles = fused_dispatch_tiling_sm90(problem, problem.out.shape, processors);
  return folded + describe_tiles({tiles.exact, tiles.exact_work}, false) + ", in one kernel";
}

std::string describe_decode(const DecodePlan& plan, bool is_folded) {
  return concatenate(plan.on_sm90 ? "wgmma" : "mma.sync", is_folded ? " of FP8" : "",
                     ", weights decoded in registers; a thread block takes ", plan.tokens,
                     " tokens and ", plan.row_tiles * DecodeLayout::tile_rows, " rows in ",
                     1 << plan.log2_parts, plan.log2_parts == 0 ? " part" : " parts",
                     " of K, clusters of ", 1 << plan.log2_ranks);
}

// Of products that are added up.
std::int64_t sum_columns(const GemmProblem& problem, const CudaGemmPlan& plan) {
  return plan.sum_columns(problem.left.shape.columns);
}

}  // namespace

GemmExplanation explain(const CudaGemmPlan& plan, const GemmProblem& problem,
                        const CudaGemmCapabilities& capabilities) {
  GemmExplanation text;
  text.device = concatenate("sm_", capabilities.major, capabilities.minor);
  text.path = name_of(plan.path);
  text.reason = plan.reason;
  text.left = describe_side(problem.left, plan.left, plan.path);
  text.right = describe_side(problem.right, plan.right, plan.path);
  text.workspace_bytes = plan.workspace_bytes;
  const bool folds = plan.path == CudaGemmPath::folded || plan.path == CudaGemmPath::few_folded;
  switch (plan.path) {
    case CudaGemmPath::nothing: text.error = "none"; return text;
    case CudaGemmPath::folded_or_exact:
      text.kernel = describe_fused_dispatch(plan, problem, capabilities.processors);
      text.error =
          concatenate("relative L2 <= 5e-4 folded, ", exact_error(sum_columns(problem, plan)),
                      " exact, for elements of both signs");
      return text;
    case CudaGemmPath::blackwell:
      text.kernel = "block-scaled tensor cores through CUTLASS: compiled, never executed";
      text.error = "never measured";
      return text;
    case CudaGemmPath::folded:
    case CudaGemmPath::exact: {
      const Shape out = multiplied_shape(problem);
      TilingSm90 tiling = plan.right.decodes
                              ? transposed_tiling_sm90(problem, out, capabilities.processors)
                              : tiling_sm90(problem, out, folds, capabilities.processors);
      if (plan.part_bytes == 0) tiling.work.whole = tiling.work.tiles;
      text.kernel = describe_tiles(tiling, folds);
      if (plan.right.decodes) text.kernel += ", computed as its transpose";
      break;
    }
    case CudaGemmPath::few_tokens:
    case CudaGemmPath::few_folded: text.kernel = describe_decode(plan.few, folds); break;
    case CudaGemmPath::portable: {
      const Shape out = multiplied_shape(problem);
      const int tile =
          cuda::portable_tile(out.batch, out.rows, out.columns, capabilities.processors);
      text.kernel = concatenate("bfloat16 mma.sync, tiles of ", tile, "x", tile);
      break;
    }
  }
  if (plan.sums > 1) text.kernel += concatenate(", K in ", plan.sums, " parts");
  text.kernel += where_it_ran(capabilities);
  text.error = error_of(folds, sum_columns(problem, plan));
  return text;
}

}  // namespace mxkern
