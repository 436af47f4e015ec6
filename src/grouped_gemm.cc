// grouped_gemm.cc: the grouped matrix product: arguments checked, the device's kernels called.
#include "mxkern/grouped_gemm.h"

#include <algorithm>

#include "check_grouped_gemm.h"
#include "cpu/gemm.h"
#include "gemm_operand.h"
#include "gemm_task.h"
#include "gemm_with.h"
#include "mxkern/core/error.h"
#include "mxkern/core/float_environment.h"
#if defined(MXKERN_HAS_CUDA)
#include "cuda/grouped_gemm.h"
#endif

namespace mxkern {
namespace {

// One group's matrix.
BlockScaled matrix_of(BlockScaled q, std::int64_t group) {
  q.codes += group * q.shape.rows * code_row_bytes(q.scheme, q.shape.columns);
  q.scales += group * q.scale_index().size();
  q.shape.batch = 1;
  return q;
}

// The product on the CPU, a group after the other.
class GroupedProduct {
 public:
  GroupedProduct(const GemmOperand& a, const BlockScaled& b, const RowGroups& groups,
                 const Buffer& out, const GroupedGemmOptions& options)
      : a_(a), b_(b), groups_(groups), out_(out), options_(options) {
    std::int64_t begin = 0;
    for (std::int64_t i = 0; i < groups.count; ++i) {
      check(groups.ends[i] >= begin && groups.ends[i] <= out.shape.rows,
            "grouped_gemm: groups.ends[", i, "] is ", groups.ends[i], "; expected ", begin, " to ",
            out.shape.rows, ", as ends do not decrease and a has ", out.shape.rows, " rows");
      begin = groups.ends[i];
    }
  }

  std::size_t workspace_bytes() const {
    std::size_t most = 0;
    for (std::int64_t i = 0; i < groups_.count; ++i) {
      if (begin_of(i) < end_of(i)) most = std::max(most, plan_of(i).workspace_bytes);
    }
    return most;
  }

  void run(void* workspace) const {
    const FloatEnvironment environment;
    for (std::int64_t i = 0; i < groups_.count; ++i) {
      if (begin_of(i) < end_of(i)) cpu::gemm(task_of(i), plan_of(i), workspace);
    }
    clear_rows(begin_of(groups_.count));
  }

 private:
  std::int64_t begin_of(std::int64_t group) const {
    return group == 0 ? 0 : groups_.ends[group - 1];
  }
  std::int64_t end_of(std::int64_t group) const { return groups_.ends[group]; }

  GemmPlan plan_of(std::int64_t group) const {
    GemmProblem problem = gemm_problem(a_, b_, out_);
    problem.m = end_of(group) - begin_of(group);
    return plan_gemm(problem, cpu::gemm_capabilities());
  }

  cpu::GemmTask task_of(std::int64_t group) const {
    GemmOptions options;
    options.alpha = options_.alpha;
    Buffer bias;
    if (options_.bias != nullptr) {
      bias = *options_.bias;
      bias.data = static_cast<std::uint8_t*>(bias.data) +
                  group * bias.batch_stride * static_cast<std::int64_t>(size_of(bias.dtype));
      bias.shape.batch = 1;
      options.bias = &bias;
    }
    const double factor = options_.factors == nullptr ? 1.0 : options_.factors[group];
    cpu::GemmTask task = make_task(a_, matrix_of(b_, group), out_, options, factor);
    task.first_row = begin_of(group);
    task.left.rows = end_of(group);
    return task;
  }

  // From this one on.
  void clear_rows(std::int64_t row) const {
    const auto size = static_cast<std::int64_t>(size_of(out_.dtype));
    for (; row < out_.shape.rows; ++row) {
      std::fill_n(static_cast<std::uint8_t*>(out_.data) + row * out_.row_stride * size,
                  out_.shape.columns * size, std::uint8_t{0});
    }
  }

  const GemmOperand& a_;
  const BlockScaled& b_;
  const RowGroups& groups_;
  const Buffer& out_;
  const GroupedGemmOptions& options_;
};

void check_cpu(const GemmOperand& a, const GemmRightOperand& b, GemmPrecision precision) {
  check_precision_of_cpu("grouped_gemm", precision);
  check_sources_for_cpu("grouped_gemm", a, b);
}

}  // namespace

void grouped_gemm(const GemmOperand& given_a, const GemmRightOperand& b, const RowGroups& groups,
                  const Buffer& given_out, const GroupedGemmOptions& options, Workspace workspace,
                  Stream stream) {
  check_grouped_gemm(given_a, b, groups, given_out, options);
  const GemmOperand a = with_strides(given_a);
  const Buffer out = with_strides(given_out);
#if defined(MXKERN_HAS_CUDA)
  if (out.device.type == DeviceType::cuda) {
    return cuda::grouped_gemm(a, b, groups, out, options, workspace, stream);
  }
#endif
  static_cast<void>(stream);  // the CPU has finished when the call returns
  check_cpu(a, b, options.precision);
  const GroupedProduct product(a, source_of(b), groups, out, options);
  if (out.shape.size() == 0) return;
  check_grouped_workspace(workspace, product.workspace_bytes(), a, b, groups, out, options);
  product.run(workspace.data);
}

std::size_t grouped_gemm_workspace_bytes(const GemmOperand& given_a, const GemmRightOperand& b,
                                         const RowGroups& groups, const Buffer& given_out,
                                         const GroupedGemmOptions& options) {
  check_grouped_gemm(given_a, b, groups, given_out, options);
  const GemmOperand a = with_strides(given_a);
  const Buffer out = with_strides(given_out);
  if (out.shape.size() == 0) return 0;
#if defined(MXKERN_HAS_CUDA)
  if (out.device.type == DeviceType::cuda) {
    return cuda::grouped_gemm_workspace_bytes(a, b, out, options);
  }
#endif
  check_cpu(a, b, options.precision);
  return GroupedProduct(a, source_of(b), groups, out, options).workspace_bytes();
}

}  // namespace mxkern
