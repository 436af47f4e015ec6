// plan/gemm_plan.h: what is in a GemmPlan, and how it is made for a device whose capabilities are
// known.
#pragma once

#include <cstring>
#include <type_traits>

#include "check/arguments.h"
#include "check/gemm.h"
#include "mxkern/plan.h"
#include "plan/gemm_cpu.h"
#include "plan/gemm_cuda.h"

namespace mxkern {

// The plan of a product on a CUDA device.
struct GemmPlanOnCuda {
  CudaGemmCapabilities capabilities;
  CudaGemmPlan plan;
};

// Makes all strides of a checked problem mean something, as with_strides does those of a tensor.
inline void know_strides(GemmProblem& problem) {
  problem.left.plain = with_strides(problem.left.plain);
  problem.out = with_strides(problem.out);
}

// On the CPU nothing depends on where memory starts.
inline void forget_alignment(GemmProblem& problem) {
  for (PlannedOperand* operand : {&problem.left, &problem.right}) {
    operand->alignment = PlannedOperand::most_aligned;
    operand->scale_alignment = PlannedOperand::most_scales_aligned;
    operand->plain.alignment = PlannedTensor::most_aligned;
  }
  problem.out.alignment = PlannedTensor::most_aligned;
}

// Pure; problems are checked, and their strides mean something. On the CPU an output without
// elements has a plan of which nothing is read.
struct GemmPlanParts {
  static GemmPlan make(const GemmProblem& problem, const CpuGemmCapabilities& capabilities) {
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
  static GemmPlan make(const GemmProblem& problem, const CudaGemmCapabilities& capabilities) {
    const CudaGemmPlan plan = plan_gemm_cuda(problem, capabilities);
    return with(problem, DeviceType::cuda, plan.workspace_bytes,
                GemmPlanOnCuda{capabilities, plan});
  }

  // Made for this device of this machine, not for one of which a name is all that is known.
  static void put_device(GemmPlan& plan, Device device) {
    plan.device_ = device;
    plan.is_here_ = true;
  }
  static bool is_on_cpu(const GemmPlan& plan) { return plan.device_.type == DeviceType::cpu; }
  static bool is_for(const GemmPlan& plan, Device device) {
    return plan.is_here_ && plan.device_ == device;
  }

  static CpuGemmPlan on_cpu(const GemmPlan& plan) { return how<CpuGemmPlan>(plan); }
  static GemmPlanOnCuda on_cuda(const GemmPlan& plan) { return how<GemmPlanOnCuda>(plan); }

 private:
  template <class How>
  static How how(const GemmPlan& plan) {
    static_assert(std::is_trivially_copyable_v<How>, "a plan is copied as bytes");
    static_assert(sizeof(How) <= sizeof plan.how_ && alignof(How) <= 8, "a plan has room for it");
    How how;
    std::memcpy(&how, plan.how_, sizeof how);
    return how;
  }
  template <class How>
  static GemmPlan with(const GemmProblem& problem, DeviceType type, std::size_t workspace_bytes,
                       const How& how) {
    GemmPlan plan;
    plan.problem_ = problem;
    plan.workspace_bytes_ = workspace_bytes;
    plan.device_.type = type;
    std::memcpy(plan.how_, &how, sizeof how);
    return plan;
  }
};

}  // namespace mxkern
