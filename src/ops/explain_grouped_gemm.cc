// ops/explain_grouped_gemm.cc: the plan of a grouped product in words, for this device or another.
#include <string>

#include "check/grouped_gemm.h"
#include "cpu/gemm/groups.h"
#include "ops/explained_device.h"
#include "ops/grouped_rows.h"
#include "check/gemm_operand.h"
#include "mxkern/grouped_gemm.h"
#include "mxkern/tensor/decode_layout.h"
#include "plan/core_rows.h"
#include "plan/words.h"
#include "plan/decode/problem.h"
#include "plan/hopper/grouped_tiles.h"
#include "plan/grouped.h"
#include "plan/portable_tile.h"

namespace mxkern {
namespace {

// Checked arguments without memory, with strides that all mean something.
struct GroupedProblem {
  PlannedOperand a, b;
  const Groups& groups;
  Shape out;

  std::int64_t columns() const { return b.shape.columns; }
};

GemmExplanation explain_cpu(const CpuGroups& p) {
  check_groups_of_cpu(p);
  GemmExplanation text;
  text.device = "cpu";
  text.path = "exact";
  text.reason = "products on the CPU are of codes and scales";
  text.left = std::string(kind_of(p.a)) + ", read as it lies";
  const bool has_panels =
      PlannedOperand(p.right).form == PreparedForm::panels && !p.groups.of_columns;
  text.right =
      std::string(kind_of(p.b)) + (has_panels ? ", prepared as panels" : ", read as it lies");
  text.kernel = "a group after the other, as gemm multiplies matrices";
  text.error = "that of a float32 sum";
  if (p.out.device.type == DeviceType::cpu && p.groups.ends != nullptr) {
    text.workspace_bytes = workspace_bytes(p);
  }
  return text;
}

const char* name_of(GroupedPath path) {
  switch (path) {
    case GroupedPath::few_tokens: return "few tokens";
    case GroupedPath::few_folded: return "few tokens, folded";
    case GroupedPath::folded: return "folded";
    case GroupedPath::expanded: return "exact";
    case GroupedPath::portable: return "portable";
  }
  return "unknown";
}

// What happens to an operand that is not read as it lies.
const char* making_of(PreparedForm form) {
  switch (form) {
    case PreparedForm::few_tokens: return ", reordered in the call";
    case PreparedForm::folded: return ", folded in the call";
    case PreparedForm::source:
    case PreparedForm::panels:
    case PreparedForm::expanded: break;
  }
  return ", expanded to bfloat16 in the call";
}

std::string describe_side(const PlannedOperand& operand, bool is_made, PreparedForm form) {
  const std::string text = kind_of(operand);
  if (is_made) return text + making_of(form);
  if (operand.form == PreparedForm::source) return text + ", read as it lies";
  return text + ", prepared as " + name_of(operand.form);
}

std::string reason_of(const GroupedProblem& p, const CudaGroupedPlan& plan,
                      const CudaGemmCapabilities& capabilities) {
  switch (plan.path) {
    case GroupedPath::few_tokens:
      return "a has 16 bits or is quantized, and weights are decoded beside its rows";
    case GroupedPath::few_folded:
      return "precision folded, and weights are decoded beside the rows";
    case GroupedPath::folded: return "precision folded";
    case GroupedPath::expanded:
      if (p.groups.of_columns) return "groups of columns are multiplied in bfloat16";
      if (p.a.is_plain && p.a.plain.dtype == DType::float32)
        return "a is float32, which kernels that decode weights do not take";
      return p.b.form == PreparedForm::expanded
                 ? "b was prepared as expanded"
                 : "b is larger than kernels that decode weights count";
    case GroupedPath::portable: break;
  }
  if (p.columns() == 0 || p.b.shape.batch == 0) return "there is nothing to add up";
  if (capabilities.is_hopper()) {
    return concatenate("a is ", kind_of(p.a), ", the sum of several bfloat16 an element");
  }
  return concatenate("this build has no other kernel of it for compute capability ",
                     capabilities.major, ".", capabilities.minor);
}

std::string describe_decode(const GroupedProblem& p, bool is_folded,
                            const CudaGemmCapabilities& capabilities) {
  const GroupedQuestion question{p.b.scheme,
                                 capabilities.is_hopper(),
                                 capabilities.processors,
                                 p.groups.count,
                                 p.out.rows,
                                 p.b.shape.rows,
                                 p.columns()};
  const DecodePlan plan = is_folded ? plan_grouped_folded(question) : plan_grouped(question);
  const std::string parts =
      concatenate(1 << plan.log2_parts, plan.log2_parts == 0 ? " part" : " parts", " of K");
  if (!plan.on_sm90) {
    return concatenate("mma.sync, weights decoded in registers, for up to ", plan.tokens,
                       " rows of a group at a time, ", parts);
  }
  return concatenate("wgmma", is_folded ? " of FP8" : "",
                     ", weights decoded in registers; a thread block takes up to ", plan.tokens,
                     " rows of a group and ", plan.row_tiles * DecodeLayout::tile_rows,
                     " outputs in ", parts);
}

std::string describe_sm90(const GroupedProblem& p, bool is_folded, int processors) {
  const cuda::CoreElement right =
      is_folded ? cuda::fold_facts(p.b.scheme).element : cuda::CoreElement::bfloat16;
  const Shape& out = p.out;
  if (p.groups.of_columns) {
    const cuda::TileSm90 tile = cuda::columns_tile_sm90(right, p.groups.count, out.rows,
                                                        out.columns, p.columns(), processors);
    return describe_tile(tile, tile.height(out.rows), is_folded) + ", of one group's output each";
  }
  return describe_tile(cuda::grouped_tile_sm90(right, out.columns, p.columns()),
                       cuda::grouped_height_sm90(out.rows, p.groups.count), is_folded) +
         ", of one group's rows each";
}

// As though groups were equal.
std::string describe_portable(const GroupedProblem& p, int processors) {
  const Shape& out = p.out;
  const std::int64_t count = higher_of<std::int64_t>(p.groups.count, 1);
  const std::int64_t rows = p.groups.of_columns ? out.rows : ceil_div(out.rows, count);
  const int tile = cuda::portable_tile(count, rows, out.columns, processors);
  return concatenate("bfloat16 mma.sync, tiles of ", tile, "x", tile);
}

GemmExplanation explain_cuda(const GroupedProblem& p, GemmPrecision precision,
                             const CudaGemmCapabilities& capabilities) {
  const CudaGroupedPlan plan = plan_grouped_cuda(p.a, p.b, p.groups, precision, capabilities);
  const PreparedForm form = right_form_of(plan.path);
  GemmExplanation text;
  text.device = concatenate("sm_", capabilities.major, capabilities.minor);
  text.path = name_of(plan.path);
  text.reason = reason_of(p, plan, capabilities);
  if (plan.makes_right && p.columns() > 0) {
    text.reason +=
        concatenate("; prepare b in the form ", name_of(form), ", or each call makes it");
  }
  text.left = describe_side(p.a, plan.makes_left, left_form_of(plan.path));
  text.right = describe_side(p.b, plan.makes_right, form);
  text.error = error_of(is_folded(plan.path), p.columns());
  text.workspace_bytes = plan.workspace_bytes;
  if (p.out.size() == 0) return text;
  switch (plan.path) {
    case GroupedPath::few_tokens:
    case GroupedPath::few_folded:
      text.kernel = describe_decode(p, is_folded(plan.path), capabilities);
      break;
    case GroupedPath::folded:
    case GroupedPath::expanded:
      text.kernel = describe_sm90(p, plan.path == GroupedPath::folded, capabilities.processors);
      break;
    case GroupedPath::portable: text.kernel = describe_portable(p, capabilities.processors); break;
  }
  text.kernel += where_it_ran(capabilities);
  return text;
}

}  // namespace

GemmExplanation explain_grouped_gemm(const GemmOperand& given_a, const GemmRightOperand& b,
                                     const Groups& groups, const Buffer& given_out,
                                     const GroupedGemmOptions& options, const std::string& device) {
  check_grouped_gemm_kinds(given_a, b, groups, given_out, options);
  const Buffer out = with_strides(given_out);
  const bool copies = options.rows != nullptr;
  const GemmOperand a =
      copies ? copies_without_memory(given_a, out, options.precision) : with_strides(given_a);
  GemmExplanation text =
      explains_cpu(device, out.device)
          ? explain_cpu({a, b, groups, out, options})
          : explain_cuda({a, b, groups, out.shape}, options.precision,
                         explained_gpu("explain_grouped_gemm", device, out.device));
  if (copies) {
    text.left += ", rows copied in the call";
    if (text.workspace_bytes > 0 || !explains_cpu(device, out.device)) {
      text.workspace_bytes += copies_bytes(given_a, out, options.precision);
    }
  }
  if (out.shape.size() > 0) return text;
  return {text.device, "nothing", "the output has no elements", text.left, text.right, "", "none"};
}

}  // namespace mxkern
