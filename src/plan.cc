// plan.cc: the plan of a matrix product for a device, and what it says of itself.
#include "check.h"
#include "check_gemm.h"
#include "cpu/gemm.h"
#include "explained_device.h"
#include "mxkern/plan.h"
#include "plan/describe_products.h"
#include "plan/gemm_plan.h"

namespace mxkern {
namespace {

// `device`: empty for `here`, which may be any device then.
GemmPlan make(const char* function, const GemmProblem& problem, const std::string& device,
              Device here) {
  GemmProblem known = problem;
  know_strides(known);
  const bool is_here = device.empty();
  const bool on_cpu = explains_cpu(device, here);
  GemmPlan plan = on_cpu ? GemmPlanParts::make(known, cpu::gemm_capabilities())
                         : GemmPlanParts::make(known, explained_gpu(function, device, here));
  if (is_here) GemmPlanParts::put_device(plan, here);
  return plan;
}

GemmExplanation explain_cpu(const GemmPlan& plan) {
  const GemmProblem& problem = plan.problem();
  GemmExplanation text;
  text.device = "cpu";
  text.path = "exact";
  text.left = std::string(kind_of(problem.left)) + ", read as it lies";
  text.right = std::string(kind_of(problem.right)) + ", read as it lies";
  text.error = "that of a float32 sum";
  if (problem.out.shape.size() == 0) {
    text.path = "nothing";
    text.reason = "the output has no elements";
    return text;
  }
  const CpuGemmPlan how = GemmPlanParts::on_cpu(plan);
  text.reason = how.reason;
  text.kernel = describe(how);
  text.workspace_bytes = plan.workspace_bytes();
  return text;
}

}  // namespace

GemmPlan plan_gemm(const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
                   const GemmOptions& options) {
  const GemmProblem problem(a, b, out, options);
  check_gemm_problem(problem);
  check_gemm_bias(options, out.shape);
  check_gemm_devices(a, b, out, options);
  return make("gemm", problem, {}, out.device);
}

GemmPlan plan_gemm(const GemmProblem& problem, Device device) {
  check_gemm_problem(problem);
  check_device("plan_gemm", device);
  return make("plan_gemm", problem, {}, device);
}

GemmPlan plan_gemm(const GemmProblem& problem, const std::string& device) {
  check_gemm_problem(problem);
  check(!device.empty(), "plan_gemm: device is empty; expected cpu, or sm_90 and the like");
  return make("plan_gemm", problem, device, {});
}

GemmExplanation explain(const GemmPlan& plan) {
  if (GemmPlanParts::is_on_cpu(plan)) return explain_cpu(plan);
  const auto [capabilities, how] = GemmPlanParts::on_cuda(plan);
  return explain(how, plan.problem(), capabilities);
}

GemmExplanation explain_gemm(const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
                             const GemmOptions& options, const std::string& device) {
  const GemmProblem problem(a, b, out, options);
  check_gemm_problem(problem);
  check_gemm_bias(options, out.shape);
  return explain(make("explain_gemm", problem, device, out.device));
}

std::string GemmPlan::device() const { return explain(*this).device; }
std::string GemmPlan::path() const { return explain(*this).path; }
std::string GemmPlan::reason() const { return explain(*this).reason; }
std::string GemmPlan::error() const { return explain(*this).error; }

}  // namespace mxkern
