// plan/gemm_plan.cc: plans of matrix products as values.
#include "plan/gemm_plan.h"

#include "check.h"
#include "check_operands.h"

namespace mxkern {

GemmProblem with_strides(const GemmProblem& problem) {
  GemmProblem known = problem;
  known.left.plain = with_strides(problem.left.plain);
  known.out = with_strides(problem.out);
  return known;
}

GemmProblem without_alignment(const GemmProblem& problem) {
  GemmProblem anywhere = problem;
  for (PlannedOperand* operand : {&anywhere.left, &anywhere.right}) {
    operand->alignment = PlannedOperand::most_aligned;
    operand->scale_alignment = PlannedOperand::most_scales_aligned;
    operand->plain.alignment = PlannedTensor::most_aligned;
  }
  anywhere.out.alignment = PlannedTensor::most_aligned;
  return anywhere;
}

GemmPlan GemmPlanParts::make(const GemmProblem& problem, const CpuGemmCapabilities& capabilities) {
  check_precision_of_cpu("gemm", problem.precision);
  check_sources_for_cpu("gemm", problem.left, problem.right);
  CpuGemmPlan plan{};
  if (problem.out.shape.size() > 0) {
    plan = plan_gemm_cpu(cpu_problem(problem.left, problem.right, problem.out), capabilities);
  }
  return with(without_alignment(problem), DeviceType::cpu, plan.workspace_bytes, plan);
}

GemmPlan GemmPlanParts::make(const GemmProblem& problem, const CudaGemmCapabilities& capabilities) {
  const CudaGemmPlan plan = plan_gemm_cuda(problem, capabilities);
  return with(problem, DeviceType::cuda, plan.workspace_bytes, GemmPlanOnCuda{capabilities, plan});
}

}  // namespace mxkern
