// bindings/grouped_gemm.cc: how matrix products are computed whose rows or columns belong to
// groups.
#include "mxkern/grouped_gemm.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mxkern::bindings {
namespace {

// Calls visitor with groups of rows, or of columns.
template <class Visitor>
auto with_groups(Address ends, std::int64_t count, bool of_columns, Visitor&& visitor) {
  const auto* data = static_cast<const std::int32_t*>(ends.value);
  return of_columns ? visitor(ColumnGroups{data, count}) : visitor(RowGroups{data, count});
}

GroupedGemmOptions options_of(int precision) {
  GroupedGemmOptions options;
  options.precision = static_cast<GemmPrecision>(precision);
  return options;
}

}  // namespace

void bind_grouped_gemm(nb::module_& module) {
  module.def(
      "grouped_gemm_problem_bytes",
      [](const PlannedOperand& left, const PlannedOperand& right, const PlannedTensor& out,
         std::int64_t groups, bool of_columns, int precision, int device) {
        const auto wanted = static_cast<GemmPrecision>(precision);
        return grouped_gemm_workspace_bytes({left, right, out, groups, of_columns, wanted},
                                            numbered_device(device));
      },
      "left"_a, "right"_a, "out"_a, "groups"_a, "of_columns"_a, "precision"_a, "device"_a);
  module.def(
      "explain_grouped_gemm",
      [](const GemmOperand& a, const GemmRightOperand& b, Address ends, std::int64_t count,
         bool of_columns, const Buffer& out, int precision, const std::string& device) {
        return with_groups(ends, count, of_columns, [&](const auto& groups) {
          return explain_grouped_gemm(a, b, groups, out, options_of(precision), device);
        });
      },
      "a"_a, "b"_a, "ends"_a.none(), "count"_a, "of_columns"_a, "out"_a, "precision"_a, "device"_a);
}

}  // namespace mxkern::bindings
