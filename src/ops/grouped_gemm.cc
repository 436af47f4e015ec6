// ops/grouped_gemm.cc: the grouped matrix products: arguments checked, the device's kernels called.
#include "mxkern/grouped_gemm.h"

#include "check/arguments.h"
#include "check/grouped_gemm.h"
#include "cpu/gemm/groups.h"
#include "ops/explained_device.h"
#include "ops/grouped_rows.h"
#include "check/gemm_operand.h"
#include "mxkern/plan.h"
#include "plan/grouped.h"
#include "cuda/gemm/grouped_gemm.h"

namespace mxkern {
namespace {

constexpr const char* function = "grouped_gemm";

// On a CUDA device.
std::size_t planned_bytes(const PlannedOperand& a, const PlannedOperand& b, const Groups& groups,
                          GemmPrecision precision, Device device) {
  return plan_grouped_cuda(a, b, groups, precision, explained_gpu(function, {}, device))
      .workspace_bytes;
}

}  // namespace

void grouped_gemm(const GemmOperand& given_a, const GemmRightOperand& b, const Groups& groups,
                  const Buffer& given_out, const GroupedGemmOptions& options, Workspace workspace,
                  Stream stream) {
  check_grouped_gemm(given_a, b, groups, given_out, options);
  const GemmOperand a = with_strides(given_a);
  const Buffer out = with_strides(given_out);
  if (options.rows != nullptr) {
    return grouped_gemm_of_copies(a, b, groups, out, options, workspace, stream);
  }
  if constexpr (has_cuda) {
    if (out.device.type == DeviceType::cuda) {
      return cuda::grouped_gemm_as(explained_gpu(function, {}, out.device), a, b, groups, out,
                                   options, workspace, stream);
    }
  }
  check_groups_of_cpu({a, b, groups, out, options});
  if (out.shape.size() == 0) {
    workspace_bytes(CpuGroups{a, b, groups, out, options});  // checks the ends
    return;
  }
  const std::size_t first = ends_bytes(groups);
  check_grouped_workspace(workspace, first, a, b, groups, out, options);
  const Groups own = copy_ends(groups, workspace.data);
  const CpuGroups product{a, b, own, out, options};
  check_grouped_workspace(workspace, workspace_bytes(product), a, b, groups, out, options);
  void* const memory = static_cast<std::byte*>(workspace.data) + first;
  if (groups.of_columns) {
    multiply_groups_of_columns(product, memory);
  } else {
    multiply_groups_of_rows(product, memory);
  }
}

std::size_t grouped_gemm_workspace_bytes(const GemmOperand& given_a, const GemmRightOperand& b,
                                         const Groups& groups, const Buffer& given_out,
                                         const GroupedGemmOptions& options) {
  check_grouped_gemm(given_a, b, groups, given_out, options);
  const GemmOperand a = with_strides(given_a);
  const Buffer out = with_strides(given_out);
  if (options.rows != nullptr) return copies_workspace_bytes(a, b, groups, out, options);
  return product_workspace_bytes(a, b, groups, out, options);
}

std::size_t product_workspace_bytes(const GemmOperand& a, const GemmRightOperand& b,
                                    const Groups& groups, const Buffer& out,
                                    const GroupedGemmOptions& options) {
  if (out.shape.size() == 0) return 0;
  if (out.device.type == DeviceType::cuda) {
    return planned_bytes(a, b, groups, options.precision, out.device);
  }
  check_groups_of_cpu({a, b, groups, out, options});
  return workspace_bytes(CpuGroups{a, b, groups, out, options});
}

std::size_t grouped_gemm_workspace_bytes(const GroupedGemmProblem& problem, Device device) {
  const Groups groups = problem.of_columns ? Groups(ColumnGroups{nullptr, problem.groups})
                                           : Groups(RowGroups{nullptr, problem.groups});
  GroupedGemmOptions options;
  options.precision = problem.precision;
  check_grouped_gemm_kinds(problem.left, problem.right, groups, problem.out, options);
  check_device(function, device);
  check<Unsupported>(device.type != DeviceType::cpu, function,
                     ": the working memory on the CPU depends on the ends of the groups; pass "
                     "operands and groups instead of a problem");
  if (problem.out.shape.size() == 0) return 0;
  PlannedOperand a = problem.left;
  a.plain = with_strides(a.plain);
  return planned_bytes(a, problem.right, groups, problem.precision, device);
}

}  // namespace mxkern
