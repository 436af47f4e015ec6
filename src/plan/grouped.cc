// plan/grouped.cc: how a product whose rows or columns belong to groups is computed.
#include "plan/grouped.h"

#include <algorithm>

#include "check/folded.h"
#include "mxkern/core/error.h"
#include "mxkern/kernels/decode/shared_memory.h"
#include "plan/core_rows.h"
#include "plan/decode/limits.h"
#include "plan/decode/problem.h"
#include "tuning/h200.h"

namespace mxkern {
namespace {

using kernels::DecodeShape;

// Rows of a thread block where groups have so many on average. What one has beyond them reads its
// weights again; rows that do not exist are multiplied as well.
int size_of_groups(std::int64_t each, int bits, bool has_sm90) {
  namespace tuned = tuning::h200::few;
  if (each <= tuned::rows_for_8) return 8;
  if (!has_sm90 || (bits == 4 && each <= tuned::rows_for_16)) return 16;
  if (each <= tuned::rows_for_32) return 32;
  return each <= tuned::rows_for_64 ? 64 : 128;
}

constexpr int most_log2_parts = 2;

// Of so many groups with rows, by so many warps that take turns with parts of K of tiles,
// microseconds: rounds in which all have one, as long as memory brings them, and one in which some
// have.
double groups_time(const DecodeLayout& layout, std::int64_t groups, int warps, int log2_parts) {
  namespace tuned = tuning::h200::few;
  const std::int64_t all = layout.tiles_down() * groups << log2_parts;
  const auto turns = static_cast<double>(ceil_div(layout.tiles_across(), 1 << log2_parts));
  const auto time_of = [&](double at_once) {
    const double brought = at_once * layout.tile_bytes() * tuned::group_byte;
    return turns * std::max(tuned::group_turn, brought) + tuned::group_end;
  };
  const auto rest = static_cast<double>(all % warps);
  return static_cast<double>(all / warps) * time_of(warps) + (rest > 0 ? time_of(rest) : 0.0);
}

// Of the groups, those that have rows, if these are spread evenly.
std::int64_t used_groups(const GroupedQuestion& q) {
  return std::clamp<std::int64_t>(q.rows, 1, std::max<std::int64_t>(q.groups, 1));
}

// Where an operand was prepared in a form that is not read, codes are needed, if it has any.
void check_source(const char* argument, const PlannedOperand& operand, const char* read) {
  if (operand.form == PreparedForm::source || operand.shape.size() == 0) return;
  check<Unsupported>(operand.has_source, "grouped_gemm: ", argument, " was prepared in the form ",
                     name_of(operand.form), " without its codes and scales; expected ", read,
                     " here; keep the source");
}

// The check that kernels and plans can count groups and what is divided among them, and tiles of
// the output, of which none is smaller than this. The copy engine has coordinates of 31 bits.
void check_countable(std::int64_t rows, const Shape& b, const Groups& groups) {
  constexpr std::int64_t extent = 64, most = cuda::most_extent, end = std::int64_t{1} << 30;
  const bool are_columns = groups.of_columns;
  const std::int64_t divided = are_columns ? b.columns : rows;
  check(divided < end && groups.count < end, "grouped_gemm: there are ", groups.count,
        " groups of ", divided, are_columns ? " columns" : " rows",
        "; expected fewer than 2^30 of both on a CUDA device; divide a");
  check(b.columns <= most, "grouped_gemm: a and b have ", b.columns, " columns; expected at most ",
        most, " on a CUDA device; divide them");
  check(rows <= most && b.rows <= most, "grouped_gemm: an output has ", rows, " rows and ", b.rows,
        " columns; expected at most ", most, " of each on a CUDA device; divide a or b");
  const std::int64_t down = ceil_div(rows, extent), across = ceil_div(b.rows, extent);
  const std::int64_t tiles_down = are_columns ? down * groups.count : down + groups.count;
  std::int64_t tiles = 0;
  check(!__builtin_mul_overflow(tiles_down, across, &tiles) && tiles < end,
        "grouped_gemm: the output has ", tiles_down, " x ", across, " tiles of ", extent, " x ",
        extent, "; expected fewer than 2^30 on a CUDA device; divide a or b");
}

// With operands that have elements.
GroupedPath path_of(const PlannedOperand& a, const PlannedOperand& b, bool of_columns,
                    GemmPrecision precision, const CudaGemmCapabilities& capabilities) {
  if (precision == GemmPrecision::folded) {
    const bool is_few =
        !of_columns && cuda::takes_decode_folded(a.scheme, b) && b.form == PreparedForm::few_tokens;
    return is_few ? GroupedPath::few_folded : GroupedPath::folded;
  }
  if (of_columns) {
    const bool has_one_part = cuda::is_expanded(a) || cuda::parts_of(a) == 1;
    return capabilities.is_hopper() && has_one_part ? GroupedPath::expanded : GroupedPath::portable;
  }
  const bool is_wide = a.is_plain && a.plain.dtype == DType::float32;
  const bool takes_decode = !is_wide && b.form != PreparedForm::expanded &&
                            cuda::counts_decode(b.scheme, b.shape) &&
                            reads(PreparedForm::few_tokens, capabilities);
  if (takes_decode) return GroupedPath::few_tokens;
  return capabilities.is_hopper() ? GroupedPath::expanded : GroupedPath::portable;
}

// Working memory for one side in a form.
std::int64_t bytes_of(const PlannedOperand& source, PreparedForm form) {
  switch (form) {
    case PreparedForm::few_tokens:
      return static_cast<std::int64_t>(cuda::reordered_bytes(source.scheme, source.shape));
    case PreparedForm::folded: return cuda::folded_layout(source.shape).bytes;
    case PreparedForm::source:
    case PreparedForm::panels:
    case PreparedForm::expanded: break;
  }
  return cuda::expanded_layout(source).bytes;
}

}  // namespace

CudaGroupedPlan plan_grouped_cuda(const PlannedOperand& a, const PlannedOperand& b,
                                  const Groups& groups, GemmPrecision precision,
                                  const CudaGemmCapabilities& capabilities) {
  if (precision == GemmPrecision::folded) {
    check_folded("grouped_gemm", a, b, capabilities, "pass precision exact");
  }
  CudaGroupedPlan plan;
  const Shape& weights = b.shape;
  check_countable(a.shape.rows, weights, groups);
  const bool has_elements = weights.batch > 0 && weights.columns > 0;
  if (has_elements) plan.path = path_of(a, b, groups.of_columns, precision, capabilities);
  const PreparedForm form = right_form_of(plan.path);
  const PreparedForm left_form = left_form_of(plan.path);
  plan.makes_right = b.form != form;
  if (plan.makes_right) check_source("b", b, name_of(form));
  const bool is_few = plan.path == GroupedPath::few_tokens;
  const bool is_ready = a.is_plain && (is_few || cuda::is_expanded(a));
  plan.makes_left = !is_ready && a.form != left_form;
  if (plan.makes_left && !a.is_plain) check_source("a", a, name_of(left_form));
  const auto take = [&](std::int64_t bytes) {
    const std::size_t at = plan.workspace_bytes;
    plan.workspace_bytes += static_cast<std::size_t>(round_up(bytes, 256));
    return at;
  };
  if (plan.makes_left) {
    plan.left = take(bytes_of(a, left_form));
  } else if (is_few && a.is_plain) {
    plan.left = take(static_cast<std::int64_t>(cuda::copied_tokens_bytes(a.plain)));
  }
  if (plan.makes_right) plan.right = take(bytes_of(b, form));
  if (plan.path == GroupedPath::few_folded) {
    plan.interleaved = take(static_cast<std::int64_t>(cuda::interleaved_bytes(a.shape)));
  }
  return plan;
}

DecodePlan plan_grouped_folded(const GroupedQuestion& q) {
  const std::int64_t each = ceil_div(q.rows, used_groups(q));
  // Groups of more rows than there are on average are to fit as well.
  const int size = folded_size(each + each / 2);
  return decode_sm90_plan(q.scheme, size, folded_warpgroups(size), 0, 0);
}

DecodePlan plan_grouped(const GroupedQuestion& q) {
  const std::int64_t used = used_groups(q);
  const std::int64_t each = ceil_div(q.rows, used);
  const SchemeFacts facts = facts_of(q.scheme);
  const int size = size_of_groups(each, facts.bits, q.has_sm90);
  if (size > 16) return decode_sm90_plan(q.scheme, size, grouped_warpgroups(size), 0, 0);
  const DecodeShape shape{facts.bits, facts.block, size};
  const DecodeLayout layout = DecodeLayout::of(q.scheme, q.outputs, q.columns);
  const int warps = q.processors * shape.tenants() * shape.warps();
  int log2_parts = 0;
  double time = groups_time(layout, used, warps, 0);
  for (int more = 1; more <= most_log2_parts; ++more) {
    const double divided = groups_time(layout, used, warps, more);
    if (divided < time) time = divided, log2_parts = more;
  }
  // As many warps as there is room for.
  for (int teams = shape.warps() >> log2_parts;; --teams) {
    const DecodePlan plan = decode_groups_plan(q.scheme, size, teams, log2_parts);
    if (plan.stages >= 2 || teams == 1) return plan;
  }
}

}  // namespace mxkern
