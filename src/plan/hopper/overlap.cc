// plan/hopper/overlap.cc: which operands a product on Hopper decodes, and which rows it makes
// ready.
#include "plan/hopper/overlap.h"

#include "plan/core_rows.h"
#include "plan/hopper/upcast.h"
#include "plan/hopper/plan_tiles.h"
#include "plan/hopper/tiles.h"
#include "tuning/h200.h"

namespace mxkern {
namespace {

// Whether the product is folded, in a kernel that can make folded rows ready itself. One of three
// kernels behind a gate cannot.
bool is_folded(const CudaGemmPlan& plan) {
  return plan.path == CudaGemmPath::folded || plan.is_in_one_kernel;
}

// Whether the product can make rows of a side ready while it is under way, and is faster so.
bool can_be_late(const PlannedOperand& operand, const CudaGemmPlan& plan, const SidePlan& side) {
  if (!cuda::can_be_late(operand)) return false;
  if (plan.path == CudaGemmPath::exact) return side.expands;
  if (plan.is_in_one_kernel && operand.shape.columns < tuning::h200::late::least_gated_columns)
    return false;
  return is_folded(plan) && side.folds &&
         operand.shape.rows * operand.shape.columns <= cuda::most_late_codes;
}

// Late rows are those of one matrix, even where the matrices of a batch are multiplied as one.
bool can_have_late_rows(const GemmProblem& problem) { return problem.out.shape.batch == 1; }

// Whether the exact product of a path decodes the left operand's codes instead of expanding them,
// where the right one's are expanded.
bool decodes_left(const GemmProblem& problem, const CudaGemmPlan& plan, int processors) {
  if (plan.path != CudaGemmPath::exact && plan.path != CudaGemmPath::folded_or_exact) return false;
  const PlannedOperand& q = problem.left;
  const Shape out = multiplied_shape(problem);
  if (q.is_plain || q.form == PreparedForm::expanded || plan.is_in_one_kernel ||
      !cuda::can_decode(q, out.batch)) {
    return false;
  }
  const cuda::TileSm90 tile = tiling_sm90(problem, out, false, processors).tile;
  if (!cuda::can_decode(tile)) return false;
  const std::int64_t k = q.shape.columns;
  const bool late_right =
      plan.path == CudaGemmPath::exact && can_have_late_rows(problem) &&
      can_be_late(problem.right, plan, plan.right) &&
      cuda::first_rows_sm90(tile, out.rows, out.columns, k, processors, false, true).right > 0;
  return cuda::is_better_decoded(tile.turns(out.batch, out.rows, out.columns, processors), out.rows,
                                 late_right);
}

// Whether tiles of a product that are divided along K are those of its transpose.
bool are_divided_alike(const TilingSm90& tiling, const TilingSm90& transposed, const Shape& out) {
  const auto is_full = [](const cuda::TileSm90& tile, std::int64_t m) {
    return tile.cluster == 2 && tile.height(m) == tile.rows;
  };
  return tiling.tile.columns == transposed.tile.columns && is_full(tiling.tile, out.rows) &&
         is_full(transposed.tile, out.columns);
}

// Whether it takes less time to decode the right operand's codes, of a product that is computed as
// its transpose. It must have the same bytes.
bool decodes_right(const GemmProblem& problem, const CudaGemmPlan& plan, bool decodes_left,
                   int processors) {
  using Clocks = cuda::ExactClocks;
  const PlannedOperand& q = problem.right;
  const Shape out = multiplied_shape(problem);
  if (plan.path != CudaGemmPath::exact || q.form == PreparedForm::expanded ||
      !cuda::can_decode(q, out.batch) || cuda::parts_of(problem.left) > 1) {
    return false;
  }
  // Other outputs take long, value by value across their rows.
  if (problem.adds_output || !cuda::has_rows_of_pieces(problem.out)) return false;
  const TilingSm90 tiling = tiling_sm90(problem, out, false, processors);
  const TilingSm90 transposed = transposed_tiling_sm90(problem, out, processors);
  const std::int64_t turns = transposed.tile.turns(out.batch, out.columns, out.rows, processors);
  if (tiling.work.divided() > 0 && !are_divided_alike(tiling, transposed, out)) return false;
  const std::int64_t k = q.shape.columns;
  const bool can_have_late = can_have_late_rows(problem);
  const cuda::FirstRowsSm90 first = cuda::first_rows_sm90(
      tiling.tile, out.rows, out.columns, k, processors,
      can_have_late && !decodes_left && can_be_late(problem.left, plan, plan.left),
      can_have_late && can_be_late(problem.right, plan, plan.right));
  // Clusters without a tile in the last turn make late rows instead.
  const bool has_makers = tiling.work.fewest_clusters() < processors / tiling.tile.cluster;
  if (turns > (first.right > 0 && has_makers ? cuda::most_decoded_turns : Clocks::most_turns)) {
    return false;
  }
  const Shape& left_shape = problem.left.shape;
  const std::int64_t left_rows = plan.left.expands ? left_shape.batch * left_shape.rows : 0;
  const std::int64_t right_rows = q.shape.batch * q.shape.rows;
  const std::int64_t straight =
      Clocks::tiles(tiling.tile, tiling.tile.turns(out.batch, out.rows, out.columns, processors), k,
                    decodes_left) +
      Clocks::expand(decodes_left ? 0 : left_rows, k, first.left > 0 && has_makers) +
      Clocks::expand(right_rows, k, first.right > 0 && has_makers);
  // As though no left row was late: that hides little where this decides.
  return Clocks::tiles(transposed.tile, turns, k, true) + Clocks::expand(left_rows, k, false) <
         straight;
}

// Which rows have to be ready before the product starts, where it makes the others itself. If they
// are folded, those of E4M3 with E4M3.
void plan_late_rows(const GemmProblem& problem, int processors, CudaGemmPlan& plan) {
  const Shape& out = problem.out.shape;
  const bool folds = is_folded(plan);
  if (!can_have_late_rows(problem) || (!folds && plan.path != CudaGemmPath::exact)) return;
  for (const PlannedOperand* operand : {&problem.left, &problem.right}) {
    if (!folds) break;
    const auto element = cuda::fold_facts(operand->scheme).element;
    if (element != cuda::CoreElement::e4m3) return;
  }
  const cuda::TileSm90 tile = tiling_sm90(problem, out, folds, processors).tile;
  const bool left = can_be_late(problem.left, plan, plan.left);
  const bool right = can_be_late(problem.right, plan, plan.right);
  const std::int64_t k = problem.right.shape.columns;
  const cuda::FirstRowsSm90 first =
      cuda::first_rows_sm90(tile, out.rows, out.columns, k, processors, left, right);
  plan.left.first_rows = first.left;
  plan.right.first_rows = first.right;
  // Behind a gate the spreads of the first rows are found as they are folded.
  if (plan.path == CudaGemmPath::folded) {
    plan.left.first_columns =
        cuda::first_columns_sm90(tile, first, out.rows, out.columns, k, processors);
  }
}

// The same where the right operand's codes are decoded.
void plan_late_rows_beside_decoded(const GemmProblem& problem, int processors, CudaGemmPlan& plan) {
  const Shape& out = problem.out.shape;
  if (!can_have_late_rows(problem) || !can_be_late(problem.left, plan, plan.left)) return;
  const auto [tile, work] = transposed_tiling_sm90(problem, out, processors);
  plan.left.first_rows =
      cuda::first_rows_beside_decoded_sm90(tile, work, out.rows, out.columns, processors);
}

void decode(SidePlan& side) {
  side.decodes = true;
  side.expands = false;
}

}  // namespace

void plan_under_way_sm90(const GemmProblem& problem, int processors, CudaGemmPlan& plan) {
  const bool left = decodes_left(problem, plan, processors);
  if (decodes_right(problem, plan, left, processors)) {
    decode(plan.right);
    return plan_late_rows_beside_decoded(problem, processors, plan);
  }
  if (left) decode(plan.left);
  plan_late_rows(problem, processors, plan);
}

}  // namespace mxkern
