// bindings/grouped_gemm.cc: the matrix product in which groups of rows have weights of their own.
#include "mxkern/grouped_gemm.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/variant.h>

#include <optional>

#include "bindings.h"
#include "gemm_workspace.h"
#include "numbers.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mxkern::bindings {
namespace {

RowGroups groups_of(Address ends, std::int64_t count) {
  return {static_cast<const std::int32_t*>(ends.value), count};
}

GroupedGemmOptions options_of(int precision) {
  GroupedGemmOptions options;
  options.precision = static_cast<GemmPrecision>(precision);
  return options;
}

}  // namespace

void bind_grouped_gemm(nb::module_& module) {
  module.def(
      "grouped_gemm",
      [](const GemmOperand& a, const GemmRightOperand& b, Address ends, std::int64_t count,
         const Buffer& out, double alpha, Address factors, const std::optional<Buffer>& bias,
         int precision, Address workspace, std::size_t workspace_bytes, Address stream) {
        const RowGroups groups = groups_of(ends, count);
        GroupedGemmOptions options = options_of(precision);
        options.alpha = nearest_float(alpha);
        options.factors = static_cast<const float*>(factors.value);
        options.bias = bias ? &*bias : nullptr;
        if (out.device.type != DeviceType::cpu) {
          return grouped_gemm(a, b, groups, out, options, {workspace.value, workspace_bytes},
                              Stream{stream.value});
        }
        call(out.shape.size() * columns_of(b), [&] {
          const std::size_t bytes = grouped_gemm_workspace_bytes(a, b, groups, out, options);
          const auto memory = allocate_workspace(bytes);
          grouped_gemm(a, b, groups, out, options, {memory.get(), bytes});
        });
      },
      "a"_a, "b"_a, "ends"_a.none(), "count"_a, "out"_a, "alpha"_a, "factors"_a.none(),
      "bias"_a.none(), "precision"_a, "workspace"_a.none(), "workspace_bytes"_a, "stream"_a.none());
  module.def(
      "grouped_gemm_workspace_bytes",
      [](const GemmOperand& a, const GemmRightOperand& b, Address ends, std::int64_t count,
         const Buffer& out, int precision) {
        return grouped_gemm_workspace_bytes(a, b, groups_of(ends, count), out,
                                            options_of(precision));
      },
      "a"_a, "b"_a, "ends"_a.none(), "count"_a, "out"_a, "precision"_a);
}

}  // namespace mxkern::bindings
