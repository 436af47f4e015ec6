// bindings/gemm.cc: the block-scaled matrix product, and operands that are prepared for it.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include <optional>
#include <string>

#include "bindings.h"
#include "gemm_workspace.h"
#include "numbers.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mxkern::bindings {
namespace {

GemmOptions options_of(double alpha, double beta, const std::optional<Buffer>& bias,
                       int precision) {
  GemmOptions options = gemm_options(alpha, beta);
  options.bias = bias ? &*bias : nullptr;
  options.precision = static_cast<GemmPrecision>(precision);
  return options;
}

void bind_prepare_operand(nb::module_& module) {
  module.def(
      "prepared_form",
      [](int wanted, int scheme_number, int device_index) {
        const auto scheme = static_cast<Scheme>(scheme_number);
        const Device device = numbered_device(device_index);
        const PreparedForm form =
            wanted < 0 ? best_prepared_form(scheme, device)
                       : usable_prepared_form(static_cast<PreparedForm>(wanted), scheme, device);
        return static_cast<int>(form);
      },
      "wanted"_a, "scheme"_a, "device"_a);
  module.def(
      "prepared_bytes",
      [](int form, int scheme, std::int64_t batch, std::int64_t rows, std::int64_t columns) {
        return prepared_bytes(static_cast<PreparedForm>(form), static_cast<Scheme>(scheme),
                              {batch, rows, columns});
      },
      "form"_a, "scheme"_a, "batch"_a, "rows"_a, "columns"_a);
  module.def(
      "prepare_operand",
      [](const PreparedOperand& out, Address stream) {
        prepare_operand(out.source, out, Stream{stream.value});
      },
      "out"_a, "stream"_a.none());
  module.def(
      "quantize_prepared",
      [](const Buffer& x, const PreparedOperand& out, const QuantizeOptions& options,
         Address stream) { prepare_operand(x, out, options, Stream{stream.value}); },
      "x"_a, "out"_a, "options"_a, "stream"_a.none());
}

}  // namespace

void bind_gemm(nb::module_& module) {
  module.def(
      "gemm",
      [](const GemmOperand& a, const GemmRightOperand& b, const Buffer& out, double alpha,
         double beta, const std::optional<Buffer>& bias, int precision, const GemmPlan* plan,
         Address workspace, Address stream) {
        const GemmOptions options = options_of(alpha, beta, bias, precision);
        if (plan == nullptr) return gemm_with_workspace(a, b, out, options);
        gemm(*plan, a, b, out, options, {workspace.value, plan->workspace_bytes()},
             Stream{stream.value});
      },
      "a"_a, "b"_a, "out"_a, "alpha"_a, "beta"_a, "bias"_a.none(), "precision"_a, "plan"_a.none(),
      "workspace"_a.none(), "stream"_a.none());
  nb::class_<GemmExplanation>(module, "GemmExplanation")
      .def_ro("device", &GemmExplanation::device)
      .def_ro("path", &GemmExplanation::path)
      .def_ro("reason", &GemmExplanation::reason)
      .def_ro("left", &GemmExplanation::left)
      .def_ro("right", &GemmExplanation::right)
      .def_ro("kernel", &GemmExplanation::kernel)
      .def_ro("error", &GemmExplanation::error)
      .def_ro("workspace_bytes", &GemmExplanation::workspace_bytes);
  nb::class_<GemmPlan>(module, "GemmPlan")
      .def_prop_ro("workspace_bytes", &GemmPlan::workspace_bytes)
      .def("explain", [](const GemmPlan& plan) { return explain(plan); });
  module.def(
      "plan_gemm",
      [](const GemmOperand& a, const GemmRightOperand& b, const Buffer& out, double beta,
         int precision, const std::string& device) {
        const GemmProblem problem(a, b, out, options_of(1.0, beta, {}, precision));
        return device.empty() ? plan_gemm(problem, out.device) : plan_gemm(problem, device);
      },
      "a"_a, "b"_a, "out"_a, "beta"_a, "precision"_a, "device"_a);
  module.def(
      "plan_gemm_problem",
      [](const PlannedOperand& left, const PlannedOperand& right, const PlannedTensor& out,
         int precision, int device) {
        return plan_gemm(GemmProblem(left, right, out, static_cast<GemmPrecision>(precision)),
                         numbered_device(device));
      },
      "left"_a, "right"_a, "out"_a, "precision"_a, "device"_a);
  bind_prepare_operand(module);
}

}  // namespace mxkern::bindings
