// cuda/grouped_gemm.cu: runs the plan of a grouped product: operands made ready, then the kernel.
#include "cuda/grouped_gemm.h"

#include "check_grouped_gemm.h"
#include "cuda/check_pointers.h"
#include "cuda/device_scope.h"
#include "cuda/expand.h"
#include "cuda/gemm.h"
#include "cuda/multiply_grouped.h"
#include "cuda/multiply_portable.h"
#include "few_problem.h"
#include "gemm_operand.h"
#include "plan_grouped.h"

namespace mxkern::cuda {
namespace {

constexpr const char* function = "grouped_gemm";

const float* tensor_scale_of(const BlockScaled* q) {
  return q != nullptr && facts_of(q->scheme).has_tensor_scale ? q->tensor_scale : nullptr;
}

// Rows of a side as the portable kernel takes them.
RowScaled rows_of(const GemmOperand& operand, void* memory) {
  RowScaled rows = expanded_view(operand, memory);
  if (rows.columns == 0) rows.exponents = nullptr;  // no element, no power of two
  return rows;
}

void run(const CudaGroupedPlan& plan, const GemmOperand& a, const GemmRightOperand& b,
         const GroupsOfRows& groups, const CoreFinish& finish, Workspace workspace, Stream stream) {
  auto* memory = static_cast<std::uint8_t*>(workspace.data);
  const BlockScaled& weights = source_of(b);
  const GemmOperand left = as_source(a), right = weights;
  void* left_memory =
      plan.expands_left || prepared_of(a) == nullptr ? memory + plan.left : prepared_of(a)->data;
  void* right_memory = plan.makes_right ? memory + plan.right : prepared_of(b)->data;
  ExpandTask expands_left, expands_right;
  if (plan.expands_left) expands_left = {&left, left_memory};
  if (plan.makes_right && !plan.is_few) expands_right = {&right, right_memory};
  const bool has_task = expands_left.operand != nullptr || expands_right.operand != nullptr;
  if (has_task && weights.shape.columns > 0) {
    expand(function, expands_left, expands_right, stream);
  }
  const RowScaled rows = rows_of(left, left_memory);
  if (!plan.is_few) {
    return multiply_portable_grouped(function, rows, rows_of(right, right_memory), groups, finish,
                                     stream);
  }
  auto* data = static_cast<std::uint8_t*>(right_memory);
  if (plan.makes_right) reorder_weights(function, weights, data, stream);
  const ReorderedWeights reordered{weights.scheme, weights.shape, data, weights.device};
  const bool is_plain = std::holds_alternative<Buffer>(left);
  const Workspace copied = {is_plain ? left_memory : nullptr,
                            is_plain ? copied_tokens_bytes(std::get<Buffer>(left)) : 0};
  multiply_grouped(function, tokens_of(left, left_memory), reordered, groups, finish, copied,
                   stream, is_plain ? nullptr : rows.exponents);
}

}  // namespace

std::size_t grouped_gemm_workspace_bytes(const GemmOperand& a, const GemmRightOperand& b,
                                         const Buffer& out) {
  if (out.shape.size() == 0) return 0;
  return plan_grouped_cuda(a, b, gemm_capabilities(out.device)).workspace_bytes;
}

void grouped_gemm_as(const CudaGemmCapabilities& capabilities, const GemmOperand& a,
                     const GemmRightOperand& b, const RowGroups& groups, const Buffer& out,
                     const GroupedGemmOptions& options, Workspace workspace, Stream stream) {
  if (out.shape.size() == 0) return;
  const CudaGroupedPlan plan = plan_grouped_cuda(a, b, capabilities);
  check_grouped_workspace(workspace, plan.workspace_bytes, a, b, groups, out, options);
  const DeviceScope scope(out.device, stream, function);
  check_pointers(function, left_names, a);
  check_pointers(function, right_names, either_side(b));
  check_pointers(function, out, options.bias, workspace);
  check_device_pointer(function, "groups.ends", groups.ends, out.device);
  check_device_pointer(function, "factors", options.factors, out.device);
  CoreFinish finish;
  finish.alpha = options.alpha;
  finish.left_tensor_scale = tensor_scale_of(quantized_of(a));
  finish.right_tensor_scale = tensor_scale_of(&source_of(b));
  finish.out = out;
  GroupsOfRows rows{groups.ends, groups.count, options.factors};
  if (options.bias != nullptr) {
    finish.bias = options.bias->data;
    finish.bias_dtype = options.bias->dtype;
    rows.bias_step = options.bias->batch_stride;
  }
  run(plan, a, b, rows, finish, workspace, stream);
}

void grouped_gemm(const GemmOperand& a, const GemmRightOperand& b, const RowGroups& groups,
                  const Buffer& out, const GroupedGemmOptions& options, Workspace workspace,
                  Stream stream) {
  grouped_gemm_as(gemm_capabilities(out.device), a, b, groups, out, options, workspace, stream);
}

}  // namespace mxkern::cuda
