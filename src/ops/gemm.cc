// ops/gemm.cc: the matrix product: a plan made, and put in words; arguments checked, the device's
// kernels called.
#include "mxkern/plan.h"

#include "check/arguments.h"
#include "check/gemm.h"
#include "cpu/gemm/gemm.h"
#include "ops/explained_device.h"
#include "check/gemm_operand.h"
#include "cpu/gemm/task.h"
#include "ops/gemm_with.h"
#include "mxkern/core/error.h"
#include "mxkern/core/float_environment.h"
#include "plan/words.h"
#include "plan/gemm_plan.h"
#include "cuda/gemm/gemm.h"

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
  text.right =
      std::string(kind_of(problem.right)) +
      (problem.right.form == PreparedForm::panels ? ", prepared as panels" : ", read as it lies");
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

// By a plan for arguments of this kind on this device.
void run(const GemmPlan& plan, const GemmOperand& given_a, const GemmRightOperand& b,
         const Buffer& given_out, const GemmOptions& options, Workspace workspace, Stream stream) {
  check_gemm_memory(given_a, b, given_out, options);
  const GemmOperand a = with_strides(given_a);
  const Buffer out = with_strides(given_out);
  if constexpr (has_cuda) {
    if (out.device.type == DeviceType::cuda) {
      return cuda::gemm(GemmPlanParts::on_cuda(plan).plan, plan.problem(), a, b, out, options,
                        workspace, stream);
    }
  }
  if (out.shape.size() == 0) return;
  gemm_with(GemmPlanParts::on_cpu(plan), a, b, out, options, workspace);
}

// What an operand or the output has, of the shape of the plan's, that the plan's has not; null:
// nothing.
const char* difference(const PlannedTensor& a, const PlannedTensor& b) {
  if (a.dtype != b.dtype) return "another dtype";
  if (a.alignment != b.alignment) return "another alignment";
  return a == b ? nullptr : "other strides";
}

const char* difference(const PlannedOperand& a, const PlannedOperand& b) {
  if (a.is_plain && b.is_plain) return difference(a.plain, b.plain);
  if (a.is_plain != b.is_plain || a.scheme != b.scheme) return "another scheme or dtype";
  if (a.form != b.form || a.has_source != b.has_source) return "another form or source";
  return a.scale_layout != b.scale_layout ? "another scale layout"
         : a == b                         ? nullptr
                                          : "another alignment";
}

void check_fits(const GemmPlan& plan, const GemmProblem& problem) {
  const GemmProblem& planned = plan.problem();
  const auto check_same = [](const char* argument, const char* what) {
    check(what == nullptr, "gemm: ", argument, " has ", what,
          " than what the plan was made for; call plan_gemm with these arguments");
  };
  check_same("a", planned.left.shape == problem.left.shape ? nullptr : "another shape");
  check_same("b", planned.right.shape == problem.right.shape ? nullptr : "another shape");
  check_same("out", planned.out.shape == problem.out.shape ? nullptr : "another shape");
  GemmProblem given = problem;
  know_strides(given);
  if (GemmPlanParts::is_on_cpu(plan)) forget_alignment(given);
  check_same("a", difference(planned.left, given.left));
  check_same("b", difference(planned.right, given.right));
  check_same("out", difference(planned.out, given.out));
  check_same("options.precision", planned.precision == given.precision ? nullptr : "another value");
  check_same("options.beta",
             planned.adds_output == given.adds_output ? nullptr : "another value, 0 or not,");
}

// A plan for one device may be run by another that is alike.
void check_device_fits(const GemmPlan& plan, Device device) {
  if (GemmPlanParts::is_for(plan, device)) return;
  bool fits = GemmPlanParts::is_on_cpu(plan) && device.type == DeviceType::cpu;
  if constexpr (has_cuda) {
    if (!GemmPlanParts::is_on_cpu(plan) && device.type == DeviceType::cuda) {
      fits = GemmPlanParts::on_cuda(plan).capabilities == cuda::gemm_capabilities("gemm", device);
    }
  }
  check(fits, "gemm: the plan is for ", plan.device(), " and out is on ", device,
        ", which is another device; call plan_gemm with these arguments");
}

}  // namespace

void gemm_with(const CpuGemmPlan& plan, const GemmOperand& a, const GemmRightOperand& b,
               const Buffer& out, const GemmOptions& options, Workspace workspace) {
  check_gemm_workspace(workspace, plan.workspace_bytes, a, b, out, options);
  const FloatEnvironment environment;
  cpu::gemm(make_task(a, source_of(b), panels_of(b), out, options), plan, workspace.data);
}

void gemm(const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
          const GemmOptions& options, Workspace workspace, Stream stream) {
  run(plan_gemm(a, b, out, options), a, b, out, options, workspace, stream);
}

void gemm(const GemmPlan& plan, const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
          const GemmOptions& options, Workspace workspace, Stream stream) {
  check_fits(plan, {a, b, out, options});
  check_gemm_bias(options, out.shape);
  check_gemm_devices(a, b, out, options);
  check_device_fits(plan, out.device);
  run(plan, a, b, out, options, workspace, stream);
}

std::size_t gemm_workspace_bytes(const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
                                 const GemmOptions& options) {
  const GemmPlan plan = plan_gemm(a, b, out, options);
  check_gemm_memory(a, b, out, options);
  return plan.workspace_bytes();
}

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
