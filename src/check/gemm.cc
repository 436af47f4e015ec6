// check/gemm.cc: the checks of the arguments of matrix products.
#include "check/gemm.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>

#include "check/arguments.h"
#include "check/gemm_operand.h"
#include "mxkern/prepare_operand.h"
#include "plan/core_rows.h"

namespace mxkern {
namespace {

void check_alignment(const char* function, const char* argument, int alignment, int most) {
  check(alignment > 0 && alignment <= most && most % alignment == 0, function, ": ", argument,
        " has an alignment of ", alignment, "; expected a power of two up to ", most);
}

void check_one_apart(const char* function, const Occupied& out, const char* argument,
                     const Buffer& x) {
  check_apart(function, out, {argument, x});
}
void check_one_apart(const char* function, const Occupied& out, const char* argument,
                     const BlockScaled& q) {
  for (const Occupied& part : OccupiedParts(argument, q).part) check_apart(function, out, part);
}
void check_one_apart(const char* function, const Occupied& out, const char* argument,
                     const PreparedOperand& p) {
  if (p.has_source()) check_one_apart(function, out, argument, p.source);
  // What its form takes: more bytes than these are nobody's to read.
  const std::size_t bytes = prepared_bytes(p.form, p.source.scheme, p.source.shape);
  check_apart(function, out, {argument, ".data", p.data, bytes});
}

}  // namespace

void check_operand_kind(const char* function, const char* argument, const PlannedOperand& operand) {
  if (operand.is_plain) {
    const PlannedTensor& x = operand.plain;
    const Buffer view{nullptr, x.dtype, x.shape, x.row_stride, x.batch_stride, {}};
    check_kind(function, argument, view);
    check_strides(function, argument, view);
    return check_alignment(function, argument, x.alignment, PlannedTensor::most_aligned);
  }
  check_kind(
      function, argument,
      BlockScaled{
          .scheme = operand.scheme, .shape = operand.shape, .scale_layout = operand.scale_layout});
  check_alignment(function, argument, operand.alignment, PlannedOperand::most_aligned);
  check_alignment(function, argument, operand.scale_alignment, PlannedOperand::most_scales_aligned);
  if (operand.form == PreparedForm::source) return;
  check_form(function, (std::string(argument) + ".").c_str(), operand.form, operand.scheme);
}

void check_precision(const char* function, GemmPrecision precision) {
  check(is_listed(precision, all_gemm_precisions), function, ": precision is number ",
        static_cast<int>(precision), "; expected one of the precisions");
}

void check_precision_of_cpu(const char* function, GemmPrecision precision) {
  check<Unsupported>(precision != GemmPrecision::folded, function,
                     ": precision is folded, and the CPU's products are exact; leave precision "
                     "out");
}

void check_sources_for_cpu(const char* function, const PlannedOperand& a, const PlannedOperand& b,
                           bool takes_panels) {
  const bool has_panels = takes_panels && b.form == PreparedForm::panels;
  const auto check_source = [&](const char* argument, const PlannedOperand& operand) {
    check<Unsupported>(operand.has_source || (has_panels && &operand == &b), function, ": ",
                       argument,
                       " was prepared without its codes and scales, which are what the CPU "
                       "multiplies; keep the source, or multiply on the device");
  };
  check_source("a", a);
  check_source("b", b);
}

void check_memory(const char* function, const char* argument, const char* part, const void* data,
                  std::size_t bytes, std::size_t alignment) {
  if (bytes == 0) return;
  check(data != nullptr, function, ": ", argument, part, " is null; expected memory for ", bytes,
        " bytes");
  check_aligned(function, argument, part, data, alignment);
}

void check_apart(const char* function, const Occupied& written, const GemmOperand& a,
                 const GemmRightOperand& b) {
  std::visit([&](const auto& left) { check_one_apart(function, written, "a", left); }, a);
  std::visit([&](const auto& right) { check_one_apart(function, written, "b", right); }, b);
}

Occupied check_workspace(const char* function, Workspace workspace, std::size_t bytes,
                         const Buffer& out) {
  const bool on_cpu = out.device.type == DeviceType::cpu;
  const std::uintptr_t alignment = on_cpu ? 64 : 256;
  check(workspace.bytes >= bytes, function, ": workspace has ", workspace.bytes,
        " bytes; expected at least ", bytes, "; ask ", function, "_workspace_bytes");
  check_memory(function, "workspace", "", workspace.data, bytes, alignment);
  const Occupied written("workspace", "", workspace.data, bytes);
  check_apart(function, written, {"out", out});
  return written;
}
namespace {

constexpr const char* function = "gemm";

void check_apart(const Occupied& written, const GemmOperand& a, const GemmRightOperand& b,
                 const GemmOptions& options) {
  check_apart(function, written, a, b);
  if (options.bias != nullptr) check_apart(function, written, {"bias", *options.bias});
}

void check_shapes(const GemmProblem& problem) {
  const Shape &left = problem.left.shape, &right = problem.right.shape;
  check(left.columns == right.columns, function, ": a has K = ", left.columns,
        " and b has K = ", right.columns,
        "; expected the same K, which is the columns of both: b is [N, K]");
  check(right.batch == left.batch || right.batch == 1, function, ": b has a batch of ", right.batch,
        " and a one of ", left.batch, "; expected the same, or 1");
  check_same_shape(function, "out", problem.out.shape, {left.batch, left.rows, right.rows});
}

}  // namespace

void check_form(const char* name, const char* place, PreparedForm form, Scheme scheme) {
  check(is_listed(form, all_prepared_forms), name, ": ", place, "form is number ",
        static_cast<int>(form), "; expected one of the forms");
  check(form != PreparedForm::folded || cuda::fold_facts(scheme).can_fold, name, ": ", place,
        "form is folded, but the scheme is ", name_of(scheme),
        "; expected mxfp8, mxfp6 or mxfp4, whose block scales fit into 8-bit floats; use the form "
        "expanded");
}

void check_form(const char* name, const char* argument, const PreparedOperand& p) {
  check_kind(name, argument, p.source);
  check_form(name, (std::string(argument) + ".").c_str(), p.form, p.source.scheme);
}

void check_prepared(const char* name, const char* argument, const PreparedOperand& p) {
  check_form(name, argument, p);
  check_memory(name, argument, p);
}

void check_memory(const char* name, const char* argument, const PreparedOperand& p) {
  const bool holds_data = p.form != PreparedForm::source;
  const std::size_t wanted = prepared_bytes(p.form, p.source.scheme, p.source.shape);
  check((p.source.codes == nullptr) == (p.source.scales == nullptr), name, ": ", argument,
        ".source has ", p.has_source() ? "codes and no scales" : "scales and no codes",
        "; expected both, or neither for an operand without its source");
  if (!holds_data || p.has_source()) check_memory(name, argument, p.source);
  if (!holds_data) return;
  check(facts_of(p.source.scheme).has_tensor_scale == (p.source.tensor_scale != nullptr), name,
        ": ", argument, ".source.tensor_scale does not fit ", name_of(p.source.scheme));
  check(p.bytes >= wanted, name, ": ", argument, " has ", p.bytes, " bytes of data; expected ",
        wanted, "; ask prepared_bytes");
  // The CPU does not read what was prepared on a device and moved, and panels wherever they start.
  const bool on_cpu = p.source.device.type == DeviceType::cpu;
  check_memory(name, argument, ".data", p.data, wanted,
               !on_cpu                          ? 128
               : p.form == PreparedForm::panels ? 4
                                                : 1);
}

void check_gemm_problem(const GemmProblem& problem) {
  check_operand_kind(function, "b", problem.right);
  check(!problem.right.is_plain, function,
        ": b is plain; expected a quantized or prepared operand; quantize it");
  check_operand_kind(function, "out", problem.out);
  check_operand_kind(function, "a", problem.left);
  check_shapes(problem);
  check_precision(function, problem.precision);
}

void check_gemm_bias(const GemmOptions& options, const Shape& out) {
  if (options.bias == nullptr) return;
  check_operand_kind(function, "bias", *options.bias);
  check_same_shape(function, "bias", options.bias->shape, {1, 1, out.columns});
}

void check_gemm_devices(const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
                        const GemmOptions& options) {
  const Device device = visit_source(a, [](const auto& left) { return left.device; });
  check_same_device(function, "a", device, out.device);
  check_same_device(function, "b", source_of(b).device, out.device);
  if (options.bias != nullptr) {
    check_same_device(function, "bias", options.bias->device, out.device);
  }
  check_device(function, out.device);
}

void check_gemm_memory(const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
                       const GemmOptions& options) {
  check_memory(function, "b", b);
  check_memory(function, "out", out);
  check_memory(function, "a", a);
  check_output(function, "out", out);
  if (options.bias != nullptr) check_memory(function, "bias", *options.bias);
  check_apart({"out", out}, a, b, options);
}

void check_gemm_workspace(Workspace workspace, std::size_t bytes, const GemmOperand& a,
                          const GemmRightOperand& b, const Buffer& out,
                          const GemmOptions& options) {
  check_apart(check_workspace(function, workspace, bytes, out), a, b, options);
}

}  // namespace mxkern
