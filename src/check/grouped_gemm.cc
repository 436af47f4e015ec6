// check/grouped_gemm.cc: the checks of the arguments of grouped_gemm.
#include "check/grouped_gemm.h"

#include "check/arguments.h"
#include "check/gemm.h"
#include "check/gemm_operand.h"

namespace mxkern {
namespace {

constexpr const char* function = "grouped_gemm";

// copies: rows of the product copy rows of a.
void check_shapes(const PlannedOperand& a, const PlannedOperand& b, const Groups& groups,
                  const PlannedTensor& out, bool copies) {
  const Shape &left = a.shape, &right = b.shape;
  check(left.batch == 1, function, ": a has a batch of ", left.batch,
        "; expected one matrix, whose ", groups.of_columns ? "columns" : "rows",
        " belong to the groups");
  check(left.columns == right.columns, function, ": a has K = ", left.columns,
        " and b has K = ", right.columns,
        "; expected the same K, which is the columns of both: b is ",
        groups.of_columns ? "[1, N, K]" : "[groups, N, K]");
  check(!copies || !groups.of_columns, function,
        ": rows is given, and columns belong to the groups; expected groups of rows");
  if (groups.of_columns) {
    check(right.batch == 1, function, ": b has a batch of ", right.batch,
          "; expected one matrix, whose columns belong to the groups");
    return check_same_shape(function, "out", out.shape, {groups.count, left.rows, right.rows});
  }
  check(groups.count == right.batch, function, ": there are ", groups.count, " ends and b has ",
        right.batch, " matrices; expected one of each for every group");
  check_same_shape(function, "out", out.shape,
                   {1, copies ? out.shape.rows : left.rows, right.rows});
}

std::size_t bytes_of(const Groups& groups, std::size_t element) {
  return static_cast<std::size_t>(groups.count) * element;
}

void check_apart(const Occupied& written, const GemmOperand& a, const GemmRightOperand& b,
                 const Groups& groups, const GroupedGemmOptions& options, std::int64_t copies) {
  const Occupied rows("rows", "", options.rows,
                      static_cast<std::size_t>(copies) * sizeof *options.rows);
  check_apart(function, written, a, b);
  check_apart(function, written,
              {"groups", ".ends", groups.ends, bytes_of(groups, sizeof *groups.ends)});
  if (options.factors != nullptr) {
    check_apart(function, written,
                {"factors", "", options.factors, bytes_of(groups, sizeof *options.factors)});
  }
  if (options.bias != nullptr) check_apart(function, written, {"bias", *options.bias});
  if (options.rows != nullptr) check_apart(function, written, rows);
}

// Whether rows may be folded is known to a device that folds them, which would need b in two forms.
void check_precision(GemmPrecision precision) {
  check_precision(function, precision);
  check(precision == GemmPrecision::exact || precision == GemmPrecision::folded, function,
        ": precision is ", name_of(precision), "; expected exact or folded");
}

}  // namespace

void check_grouped_gemm_kinds(const PlannedOperand& a, const PlannedOperand& b,
                              const Groups& groups, const PlannedTensor& out,
                              const GroupedGemmOptions& options) {
  check_precision(options.precision);
  check_operand_kind(function, "b", b);
  check(!b.is_plain, function,
        ": b is plain; expected a quantized or prepared operand; quantize it");
  check_operand_kind(function, "out", out);
  check_operand_kind(function, "a", a);
  check_shapes(a, b, groups, out, options.rows != nullptr);
  if (options.bias == nullptr) return;
  check_operand_kind(function, "bias", *options.bias);
  check_same_shape(function, "bias", options.bias->shape, {groups.count, 1, out.shape.columns});
}

void check_grouped_gemm(const GemmOperand& a, const GemmRightOperand& b, const Groups& groups,
                        const Buffer& out, const GroupedGemmOptions& options) {
  check_precision(options.precision);
  check_operand(function, "b", b);
  check_buffer(function, "out", out);
  check_operand(function, "a", a);
  check_shapes(a, b, groups, out, options.rows != nullptr);
  const Device device = visit_source(a, [](const auto& left) { return left.device; });
  check_same_device(function, "a", device, out.device);
  check_same_device(function, "b", source_of(b).device, out.device);
  check_memory(function, "groups", ".ends", groups.ends, bytes_of(groups, sizeof *groups.ends),
               sizeof *groups.ends);
  if (options.factors != nullptr) check_aligned(function, "factors", "", options.factors);
  if (options.rows != nullptr) check_aligned(function, "rows", "", options.rows);
  check_output(function, "out", out);
  if (options.bias != nullptr) {
    check_buffer(function, "bias", *options.bias);
    check_same_shape(function, "bias", options.bias->shape, {groups.count, 1, out.shape.columns});
    check_same_device(function, "bias", options.bias->device, out.device);
  }
  check_device(function, out.device);
  check_apart({"out", out}, a, b, groups, options, out.shape.rows);
}

void check_grouped_workspace(Workspace workspace, std::size_t bytes, const GemmOperand& a,
                             const GemmRightOperand& b, const Groups& groups, const Buffer& out,
                             const GroupedGemmOptions& options) {
  check_apart(check_workspace(function, workspace, bytes, out), a, b, groups, options,
              out.shape.rows);
}

}  // namespace mxkern
