// bindings/gemm.cc: plans of matrix products without memory, as of JAX programs, and forms of
// operands that are prepared for them.
#include "bindings.h"
#include "mxkern/plan.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mxkern::bindings {

void bind_gemm(nb::module_& module) {
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
  nb::class_<GemmPlan>(module, "GemmPlan")
      .def_prop_ro("workspace_bytes", &GemmPlan::workspace_bytes);
  module.def(
      "plan_gemm_problem",
      [](const PlannedOperand& left, const PlannedOperand& right, const PlannedTensor& out,
         int precision, int device) {
        return plan_gemm(GemmProblem(left, right, out, static_cast<GemmPrecision>(precision)),
                         numbered_device(device));
      },
      "left"_a, "right"_a, "out"_a, "precision"_a, "device"_a);
  module.def(
      "grouped_gemm_problem_bytes",
      [](const PlannedOperand& left, const PlannedOperand& right, const PlannedTensor& out,
         std::int64_t groups, bool of_columns, int precision, int device) {
        const auto wanted = static_cast<GemmPrecision>(precision);
        return grouped_gemm_workspace_bytes({left, right, out, groups, of_columns, wanted},
                                            numbered_device(device));
      },
      "left"_a, "right"_a, "out"_a, "groups"_a, "of_columns"_a, "precision"_a, "device"_a);
}

}  // namespace mxkern::bindings
