// bindings/gemm.cc: plans of matrix products, and forms of operands that are prepared for them.
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include <string>

#include "bindings.h"
#include "mxkern/plan.h"
#include "numbers.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mxkern::bindings {
namespace {

GemmOptions options_of(double beta, int precision) {
  GemmOptions options = gemm_options(1.0, beta);
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
}

}  // namespace

void bind_gemm(nb::module_& module) {
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
        const GemmProblem problem(a, b, out, options_of(beta, precision));
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
