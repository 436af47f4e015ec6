// plan_grouped.cc: how a product whose rows belong to groups is computed.
#include "plan_grouped.h"

#include <algorithm>

#include "cuda/expand.h"
#include "cuda/multiply_few.h"
#include "few_problem.h"
#include "gemm_operand.h"
#include "mxkern/core/error.h"
#include "mxkern/kernels/few_shape.h"

namespace mxkern {
namespace {

using kernels::FewShape;

// Rows of a thread block where groups have so many on average. What one has beyond them reads its
// weights again; rows that do not exist are multiplied as well. As measured: see
// docs/cuda-few-tokens.md.
int size_of_groups(std::int64_t each, int bits, bool has_sm90) {
  if (each <= (bits == 4 ? 8 : 4)) return 8;
  if (!has_sm90 || (bits == 4 && each <= 12)) return 16;
  if (each <= 24) return 32;
  return each <= 96 ? 64 : 128;
}

// Where an operand was prepared in a form that is not read, codes are needed.
void check_source(const char* argument, const GemmOperand& operand, const char* read) {
  const PreparedOperand* p = prepared_of(operand);
  if (p == nullptr || p->form == PreparedForm::source) return;
  check<Unsupported>(p->has_source(), "grouped_gemm: ", argument, " was prepared in the form ",
                     name_of(p->form), " without its codes and scales; expected ", read,
                     " here; keep the source");
}

}  // namespace

CudaGroupedPlan plan_grouped_cuda(const GemmOperand& a, const GemmRightOperand& b,
                                  const CudaGemmCapabilities& capabilities) {
  const GemmOperand right = either_side(b);
  const BlockScaled& weights = source_of(b);
  const auto* plain = std::get_if<Buffer>(&a);
  const bool is_wide = plain != nullptr && plain->dtype == DType::float32;
  CudaGroupedPlan plan;
  plan.is_few = !is_wide && weights.shape.columns > 0 && form_of(right) != PreparedForm::expanded &&
                cuda::counts_few(weights.scheme, weights.shape) &&
                reads(PreparedForm::few_tokens, capabilities);
  const PreparedForm form = plan.is_few ? PreparedForm::few_tokens : PreparedForm::expanded;
  plan.makes_right = form_of(right) != form;
  if (plan.makes_right) check_source("b", right, name_of(form));
  const bool is_ready = plain != nullptr && (plan.is_few || cuda::is_expanded(a));
  plan.expands_left = !is_ready && form_of(a) != PreparedForm::expanded;
  if (plan.expands_left && plain == nullptr) check_source("a", a, "expanded");
  const auto take = [&](std::int64_t bytes) {
    const std::size_t at = plan.workspace_bytes;
    plan.workspace_bytes += static_cast<std::size_t>(round_up(bytes, 256));
    return at;
  };
  if (plan.expands_left) {
    plan.left = take(cuda::expanded_layout(as_source(a)).bytes);
  } else if (plan.is_few && plain != nullptr) {
    plan.left = take(static_cast<std::int64_t>(cuda::copied_tokens_bytes(*plain)));
  }
  if (plan.makes_right) {
    plan.right = take(plan.is_few ? cuda::reordered_bytes(weights.scheme, weights.shape)
                                  : cuda::expanded_layout(as_source(right)).bytes);
  }
  return plan;
}

FewPlan plan_grouped(const GroupedQuestion& q) {
  const std::int64_t used =
      std::clamp<std::int64_t>(q.rows, 1, std::max<std::int64_t>(q.groups, 1));
  const std::int64_t each = ceil_div(q.rows, used);
  const SchemeFacts facts = facts_of(q.scheme);
  const int size = size_of_groups(each, facts.bits, q.has_sm90);
  if (size > 16) return few_sm90_plan(q.scheme, size, grouped_warpgroups(size), 0, 0);
  // Of one warp's K where there is much to do, of two or four warps' where thread blocks would come
  // to less than a few rounds.
  const FewShape shape{facts.bits, facts.block, size};
  const DecodeLayout layout = DecodeLayout::of(q.scheme, q.outputs, q.columns);
  const std::int64_t blocks = ceil_div(layout.tiles_down(), shape.warps()) * used;
  const std::int64_t places = std::int64_t{q.processors} * shape.tenants();
  int log2_parts = blocks < (facts.bits == 4 ? 3 : 6) * places ? 1 : 0;
  if (4 * blocks < places) log2_parts = 2;
  // As many warps as there is room for.
  for (int tiles = shape.warps() >> log2_parts;; --tiles) {
    const FewPlan plan = few_plan(q.scheme, size, tiles, log2_parts);
    if (plan.stages >= 2 || tiles == 1) return plan;
  }
}

}  // namespace mxkern
