// plan/gemm_plan.cc: plans of matrix products as values.
#include "plan/gemm_plan.h"

#include "check.h"
#include "check_operands.h"

namespace mxkern {

void know_strides(GemmProblem& problem) {
  problem.left.plain = with_strides(problem.left.plain);
  problem.out = with_strides(problem.out);
}

void forget_alignment(GemmProblem& problem) {
  for (PlannedOperand* operand : {&problem.left, &problem.right}) {
    operand->alignment = PlannedOperand::most_aligned;
    operand->scale_alignment = PlannedOperand::most_scales_aligned;
    operand->plain.alignment = PlannedTensor::most_aligned;
  }
  problem.out.alignment = PlannedTensor::most_aligned;
}

GemmPlan GemmPlanParts::make(const GemmProblem& problem, const CpuGemmCapabilities& capabilities) {
  check_precision_of_cpu("gemm", problem.precision);
  check_sources_for_cpu("gemm", problem.left, problem.right);
  CpuGemmPlan plan{};
  if (problem.out.shape.size() > 0) {
    plan = plan_gemm_cpu(cpu_problem(problem.left, problem.right, problem.out), capabilities);
  }
  GemmPlan made = with(problem, DeviceType::cpu, plan.workspace_bytes, plan);
  forget_alignment(made.problem_);
  return made;
}

GemmPlan GemmPlanParts::make(const GemmProblem& problem, const CudaGemmCapabilities& capabilities) {
  const CudaGemmPlan plan = plan_gemm_cuda(problem, capabilities);
  return with(problem, DeviceType::cuda, plan.workspace_bytes, GemmPlanOnCuda{capabilities, plan});
}

}  // namespace mxkern
