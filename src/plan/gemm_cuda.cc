// plan/gemm_cuda.cc: the choice of kernels for a matrix product on a CUDA device.
#include "plan/gemm_cuda.h"

#include <algorithm>

#include "check/folded.h"
#include "mxkern/core/error.h"
#include "mxkern/core/math.h"
#include "plan/core_rows.h"
#include "plan/decode/limits.h"
#include "plan/decode/problem.h"
#include "plan/decode/plan.h"
#include "plan/hopper/plan_tiles.h"
#include "plan/hopper/overlap.h"
#include "plan/blackwell.h"

namespace mxkern {
namespace {

// The check that kernels and plans can count tiles of an output, of which none is smaller than
// this, steps along K, and clocks. The copy engine has coordinates of 31 bits.
void check_countable(const Shape& out, std::int64_t k) {
  constexpr std::int64_t extent = 64, most_rows = cuda::most_extent;
  constexpr std::int64_t end_of_tiles = std::int64_t{1} << 30;
  constexpr std::int64_t end_of_steps = std::int64_t{1} << 40;
  check(out.rows <= most_rows && out.columns <= most_rows, "gemm: the output has ", out.rows,
        " rows and ", out.columns, " columns; expected at most ", most_rows,
        " of each on a CUDA device; split it");
  check(k <= cuda::most_extent, "gemm: a and b have K = ", k, "; expected at most ",
        cuda::most_extent, " on a CUDA device; split it, and add the products with beta = 1");
  const std::int64_t tiles = out.batch * ceil_div(out.rows, extent) * ceil_div(out.columns, extent);
  check(tiles < end_of_tiles, "gemm: the output has ", tiles, " tiles of ", extent, " x ", extent,
        "; expected fewer than 2^30 on a CUDA device; split it, or its batch");
  const std::int64_t steps = ceil_div(k, extent);
  check(tiles * steps < end_of_steps, "gemm: a product of ", out.batch, " x ", out.rows, " x ",
        out.columns, " sums of ", k,
        " elements; expected fewer than 2^58 multiplications on a CUDA device; split it");
}

// A product reads what was prepared in its form, and makes it of codes and scales otherwise. Those
// of no element may be null, and there is nothing to read.
void check_readable(const char* argument, const PlannedOperand& operand, PreparedForm form) {
  if (operand.form == PreparedForm::source || operand.shape.size() == 0) return;
  check(operand.form == form || operand.has_source, "gemm: ", argument, " was prepared as ",
        name_of(operand.form),
        " without its codes and scales, and this product needs them; keep the source, or pass "
        "precision folded to products of folded operands, and exact or auto to others");
}

// Whether both operands could be folded instead, for an output and a precision that take it.
bool could_fold(const GemmProblem& problem) {
  const auto has_source = [](const PlannedOperand& operand) {
    return can_fold(operand) && operand.has_source;
  };
  return problem.precision == GemmPrecision::automatic && problem.out.dtype != DType::float32 &&
         has_source(problem.left) && has_source(problem.right);
}

// A left operand of few rows, for which weights can be put in order: plain in 16 bits, or a
// quantized one, as long as folding both takes longer.
bool has_few_tokens(const GemmProblem& problem, const CudaGemmCapabilities& capabilities) {
  const DecodeProblem few(problem);
  if (!problem.left.is_plain && few.tokens > cuda::few_quantized_tokens && could_fold(problem)) {
    return false;
  }
  if (!cuda::counts_decode(few.weights.scheme, few.weights.shape)) return false;
  if (few.may_use_sm90(capabilities)) return few.tokens <= cuda::few_tokens_sm90;
  return cuda::takes_decode(few.x.dtype, few.tokens, capabilities.major * 10 + capabilities.minor);
}

// With weights that are in that order. To reorder them in the call takes longer than to expand
// them: 132 us against 50 for MXFP8 weights [8192, 8192] on an H200.
bool takes_decode(const GemmProblem& problem, const CudaGemmCapabilities& capabilities) {
  return problem.right.form == PreparedForm::few_tokens && has_few_tokens(problem, capabilities);
}

// Folded rows with weights that are in that order: many of them only where there is no way to fold
// the weights.
bool takes_few_folded(const GemmProblem& problem) {
  const PlannedOperand& weights = problem.right;
  return weights.form == PreparedForm::few_tokens &&
         cuda::takes_decode_folded(problem.left.scheme, weights) &&
         (DecodeProblem(problem).tokens <= cuda::few_tokens_sm90 || !weights.has_source);
}

// Codes and scales that the block-scaled tensor cores of Blackwell take as they are. How exact
// their sums are nobody has measured, so products that have to be exact go elsewhere.
bool takes_blackwell(const GemmProblem& problem, const CudaGemmCapabilities& capabilities) {
  return capabilities.has_blackwell_kernels && !problem.left.is_plain && problem.left.has_source &&
         problem.right.has_source && problem.precision == GemmPrecision::automatic &&
         cuda::why_not_blackwell(problem.left, problem.right, problem.out) == nullptr;
}

struct Choice {
  CudaGemmPath path;
  const char* reason;
};

Choice choose(const GemmProblem& problem, const CudaGemmCapabilities& capabilities) {
  const bool hopper = capabilities.is_hopper();
  if (problem.precision == GemmPrecision::folded) {
    check_folded("gemm", problem.left, problem.right, capabilities, "pass precision auto or exact");
  }
  if (problem.out.shape.size() == 0) return {CudaGemmPath::nothing, "the output has no elements"};
  const bool is_deep = problem.right.shape.columns > 0;
  if (problem.precision == GemmPrecision::folded && is_deep) {
    check_readable("a", problem.left, PreparedForm::folded);
    if (takes_few_folded(problem)) {
      return {CudaGemmPath::few_folded, "asked for; the weights are read once"};
    }
    check_readable("b", problem.right, PreparedForm::folded);
    return {CudaGemmPath::folded, "asked for"};
  }
  check_readable("a", problem.left, PreparedForm::expanded);
  if (is_deep && takes_decode(problem, capabilities)) {
    return {CudaGemmPath::few_tokens, problem.left.is_plain
                                          ? "a has few rows in 16 bits: the weights are read once"
                                          : "a has few rows: the weights are read once"};
  }
  check_readable("b", problem.right, PreparedForm::expanded);
  check<Unsupported>(capabilities.major >= 8, "gemm: the device has compute capability ",
                     capabilities.major, ".", capabilities.minor,
                     "; expected 8.0 or newer; multiply on the CPU");
  if (!is_deep) return {CudaGemmPath::portable, "K is 0: sums of nothing"};
  if (takes_blackwell(problem, capabilities)) {
    return {CudaGemmPath::blackwell, "the tensor cores take these block scales"};
  }
  const bool could_take_decode =
      problem.right.form == PreparedForm::source && has_few_tokens(problem, capabilities);
  if (!hopper) {
    return {CudaGemmPath::portable,
            could_take_decode
                ? "for every GPU from 8.0 on; weights prepared as few_tokens would be read once"
                : "for every GPU from 8.0 on"};
  }
  if (problem.precision == GemmPrecision::exact) return {CudaGemmPath::exact, "asked for"};
  if (!can_fold(problem.left) || !can_fold(problem.right)) {
    return {CudaGemmPath::exact,
            could_take_decode
                ? "an operand has no folded form; weights prepared as few_tokens would be read once"
                : "an operand has no folded form"};
  }
  if (problem.out.dtype == DType::float32) return {CudaGemmPath::exact, "the output is float32"};
  if (!problem.left.has_source || !problem.right.has_source) {
    return {CudaGemmPath::exact, "an operand was expanded without its codes and scales"};
  }
  return {CudaGemmPath::folded_or_exact,
          "folded if the scales of every row lie close enough together, which the device looks at"};
}

std::size_t aligned(std::int64_t bytes) { return static_cast<std::size_t>(round_up(bytes, 256)); }

// What happens to one side.
SidePlan plan_side(const PlannedOperand& operand, CudaGemmPath path) {
  SidePlan plan;
  if (operand.shape.columns == 0) return plan;
  const PreparedForm form = operand.form;
  const bool is_folded = path == CudaGemmPath::folded || path == CudaGemmPath::few_folded;
  const bool wants_folded = is_folded || path == CudaGemmPath::folded_or_exact;
  const bool wants_expanded = !is_folded;
  plan.is_prepared = (wants_folded && form == PreparedForm::folded) ||
                     (wants_expanded && form == PreparedForm::expanded);
  plan.folds = wants_folded && form != PreparedForm::folded;
  plan.expands = wants_expanded && form != PreparedForm::expanded && !cuda::is_expanded(operand);
  return plan;
}

// Whether one kernel computes the folded product or the exact one, for which it expands operands
// itself.
bool takes_one_kernel(const GemmProblem& problem, CudaGemmPath path, int processors) {
  const Shape& out = problem.out.shape;
  if (path != CudaGemmPath::folded_or_exact || out.batch != 1) return false;
  return fused_dispatch_tiling_sm90(problem, out, processors).is_better;
}

// Exact ones; folded products take their sums out all along.
std::int64_t sums_of(const GemmProblem& problem, CudaGemmPath path) {
  const bool is_exact = path == CudaGemmPath::exact || path == CudaGemmPath::portable;
  const std::int64_t k = problem.right.shape.columns;
  if (!is_exact || problem.out.dtype != DType::float32 || k <= longest_sum) return 1;
  // Parts of whole steps: of very many, fewer do.
  CudaGemmPlan plan;
  plan.sums = ceil_div(k, longest_sum);
  return ceil_div(k, plan.sum_columns(k));
}

// Memory for one side, from `begin` on; returns where it ends.
std::size_t place(const PlannedOperand& operand, std::size_t begin, SidePlan& plan) {
  plan.folded = plan.expanded = begin;
  std::size_t end = begin;
  if (plan.expands) end += aligned(cuda::expanded_layout(operand).bytes);
  if (plan.folds) {
    // Where a product of folded rows was not to be, all that is still read of them are the spreads:
    // the rest may lie under the expanded rows.
    const cuda::RowScaledLayout layout = cuda::folded_layout(operand.shape);
    const auto spreads = static_cast<std::size_t>(layout.spreads);
    if (end - begin > spreads) plan.folded = end - spreads;
    end = std::max(end, plan.folded + aligned(layout.bytes));
  }
  plan.progress = end;
  if (plan.first_rows > 0) {
    end +=
        aligned(cuda::FirstRows::counters(plan.first_rows, plan.first_columns, operand.shape) * 4);
  }
  return end;
}

}  // namespace

Shape multiplied_shape(const GemmProblem& problem) {
  constexpr std::int64_t most_rows = std::int64_t{1} << 30;
  const Shape out = problem.out.shape;
  // Other left operands are multiplied as working memory or preparation has them: without gaps.
  const bool left_is_one = !cuda::is_expanded(problem.left) || is_one_matrix(problem.left.plain);
  const bool merges = out.batch > 1 && problem.right.shape.batch == 1 && left_is_one &&
                      is_one_matrix(problem.out) && out.rows <= most_rows / out.batch;
  return merges ? Shape{1, out.batch * out.rows, out.columns} : out;
}

bool reads(PreparedForm form, const CudaGemmCapabilities& capabilities) {
  switch (form) {
    case PreparedForm::source: return true;
    case PreparedForm::folded: return capabilities.is_hopper();
    case PreparedForm::expanded: return capabilities.major >= 8;
    case PreparedForm::panels: return false;
    case PreparedForm::few_tokens:
      return cuda::takes_decode(DType::bfloat16, 1, capabilities.major * 10 + capabilities.minor);
  }
  return false;
}

CudaGemmPlan plan_gemm_cuda(const GemmProblem& problem, const CudaGemmCapabilities& capabilities) {
  check_countable(problem.out.shape, problem.right.shape.columns);
  const Choice choice = choose(problem, capabilities);
  CudaGemmPlan plan;
  plan.path = choice.path;
  plan.reason = choice.reason;
  switch (plan.path) {
    case CudaGemmPath::folded:
    case CudaGemmPath::exact:
    case CudaGemmPath::portable:
    case CudaGemmPath::folded_or_exact: {
      plan.is_in_one_kernel = takes_one_kernel(problem, plan.path, capabilities.processors);
      plan.sums = sums_of(problem, plan.path);
      const bool is_whole = plan.sums == 1;
      plan.left = plan_side(problem.left, plan.path);
      plan.right = plan_side(problem.right, plan.path);
      if (is_whole) plan_under_way_sm90(problem, capabilities.processors, plan);
      const std::size_t middle = place(problem.left, 0, plan.left);
      plan.workspace_bytes = place(problem.right, middle, plan.right);
      if (is_whole) place_parts_sm90(problem, capabilities.processors, plan);
      return plan;
    }
    case CudaGemmPath::few_tokens:
      plan.right.is_prepared = true;
      plan.few = DecodeProblem(problem).plan(capabilities);
      if (problem.left.is_plain) {
        plan.workspace_bytes =
            aligned(static_cast<std::int64_t>(cuda::copied_tokens_bytes(problem.left.plain)));
      } else {
        plan.left = plan_side(problem.left, plan.path);
        plan.workspace_bytes = place(problem.left, 0, plan.left);
      }
      return plan;
    case CudaGemmPath::few_folded: {
      const DecodeProblem few(problem);
      plan.right.is_prepared = true;
      plan.few =
          plan_decode_folded(few.weights.scheme, few.batch, few.tokens, few.weights.shape.rows,
                             few.weights.shape.columns, capabilities.processors);
      plan.left = plan_side(problem.left, plan.path);
      plan.interleaved = place(problem.left, 0, plan.left);
      plan.workspace_bytes =
          plan.interleaved +
          aligned(static_cast<std::int64_t>(cuda::interleaved_bytes(problem.left.shape)));
      return plan;
    }
    case CudaGemmPath::blackwell:
      plan.workspace_bytes = cuda::blackwell_workspace(problem.left, problem.right).bytes;
      return plan;
    case CudaGemmPath::nothing: break;
  }
  return plan;
}

CudaGemmCapabilities capabilities_of(const std::string& architecture, const char* function) {
  struct Known {
    const char* name;
    CudaGemmCapabilities capabilities;
  };
  static constexpr Known known[] = {
      {"sm_80", {8, 0, 108}},   {"sm_86", {8, 6, 84}},    {"sm_89", {8, 9, 142}},
      {"sm_90", {9, 0, 132}},   {"sm_100", {10, 0, 148}}, {"sm_103", {10, 3, 148}},
      {"sm_120", {12, 0, 188}}, {"sm_121", {12, 1, 48}},
  };
  for (const Known& one : known) {
    if (architecture != one.name) continue;
    CudaGemmCapabilities found = one.capabilities;
    found.has_blackwell_kernels =
        cuda::blackwell_of(found.major, found.minor) != cuda::Blackwell::none;
    return found;
  }
  throw InvalidArgument(std::string(function) + ": device is '" + architecture +
                        "'; expected cpu, sm_80, sm_86, sm_89, sm_90, sm_100, sm_103, sm_120 or "
                        "sm_121");
}

}  // namespace mxkern
