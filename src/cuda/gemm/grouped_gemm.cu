// cuda/gemm/grouped_gemm.cu: runs the plan of a grouped product: operands made ready, then the
// kernel.
#include "cuda/gemm/grouped_gemm.h"

#include "check/grouped_gemm.h"
#include "cuda/runtime/check_pointers.h"
#include "cuda/gemm/epilogue.h"
#include "cuda/runtime/device_scope.h"
#include "cuda/operands/expand.h"
#include "cuda/operands/fold.h"
#include "cuda/decode/grouped.h"
#include "cuda/experts/swiglu.h"
#include "cuda/gemm/portable.h"
#include "cuda/gemm/hopper/groups.h"
#include "check/gemm_operand.h"
#include "plan/grouped.h"

namespace mxkern::cuda {
namespace {

constexpr const char* function = "grouped_gemm";

// Runs a plan.
class GroupedProduct {
 public:
  GroupedProduct(const CudaGroupedPlan& plan, const GemmOperand& a, const GemmRightOperand& b,
                 bool of_columns, const DeviceGroups& groups, const CoreFinish& finish,
                 const std::int32_t* rows, Workspace workspace, Stream stream)
      : rows_(rows),
        plan_(plan),
        of_columns_(of_columns),
        a_(a),
        left_(as_source(a)),
        weights_(source_of(b)),
        groups_(groups),
        finish_(finish),
        left_memory_(memory_of(prepared_of(a), plan.makes_left, workspace, plan.left)),
        right_memory_(memory_of(prepared_of(b), plan.makes_right, workspace, plan.right)),
        interleaved_(static_cast<std::uint8_t*>(workspace.data) + plan.interleaved),
        stream_(stream) {}

  void run() const {
    switch (plan_.path) {
      case GroupedPath::few_tokens: return multiply_few_tokens(nullptr);
      case GroupedPath::few_folded: return multiply_few_folded();
      case GroupedPath::folded: return multiply_folded();
      case GroupedPath::expanded:
        expand_operands(true);
        return multiply(multiply_sm90_grouped, multiply_sm90_columns, left_rows(), right_rows());
      case GroupedPath::portable:
        expand_operands(true);
        return multiply(multiply_portable_grouped, multiply_portable_columns, left_rows(),
                        right_rows());
    }
  }

  void multiply_few_tokens(const GatedOutput* gated) const {
    expand_operands(false);
    auto* data = static_cast<std::uint8_t*>(right_memory_);
    if (plan_.makes_right) reorder_weights(function, weights_, data, stream_);
    const ReorderedWeights reordered{weights_.scheme, weights_.shape, data, weights_.device};
    const auto* plain = std::get_if<Buffer>(&left_);
    const Workspace copied = {plain != nullptr ? left_memory_ : nullptr,
                              plain != nullptr ? copied_tokens_bytes(*plain) : 0};
    DeviceGroups groups = groups_;
    groups.are_complete = groups.are_complete && !plan_.makes_right;
    multiply_grouped(function, tokens_of(left_, left_memory_), reordered, groups, finish_, copied,
                     stream_, plain != nullptr ? nullptr : left_rows().exponents, gated);
  }

 private:
  static void* memory_of(const PreparedOperand* prepared, bool is_made, Workspace workspace,
                         std::size_t at) {
    if (!is_made && prepared != nullptr) return prepared->data;
    return static_cast<std::uint8_t*>(workspace.data) + at;
  }

  static RowScaled expanded(const GemmOperand& source, void* memory) {
    RowScaled rows = expanded_view(source, memory);
    if (rows.columns == 0) rows.exponents = nullptr;  // no element, no power of two
    return rows;
  }
  RowScaled left_rows() const { return expanded(left_, left_memory_); }
  RowScaled right_rows() const { return expanded(weights_, right_memory_); }

  // By the kernel for groups of rows, or of columns.
  template <class Kernel>
  void multiply(Kernel* rows, Kernel* columns, const RowScaled& left,
                const RowScaled& right) const {
    (of_columns_ ? columns : rows)(function, left, right, groups_, finish_, stream_);
  }

  void expand_operands(bool both) const {
    const GemmOperand right = weights_;
    ExpandTask first, second;
    if (plan_.makes_left) first = {&left_, left_memory_};
    if (plan_.makes_right && both) second = {&right, right_memory_};
    const bool has_task = first.operand != nullptr || second.operand != nullptr;
    if (has_task && weights_.shape.columns > 0) expand(function, first, second, stream_);
  }

  void multiply_few_folded() const {
    const BlockScaled& x = *quantized_of(a_);
    if (plan_.makes_left) fold_rows_of(x, left_memory_);
    const ReorderedWeights reordered{weights_.scheme, weights_.shape,
                                     static_cast<std::uint8_t*>(right_memory_), weights_.device};
    const DecodePlan plan =
        plan_grouped_folded({weights_.scheme, true, processor_count(function), groups_.count,
                             finish_.out.shape.rows, weights_.shape.rows, weights_.shape.columns});
    multiply_grouped_folded(plan, function, folded_view(x.scheme, x.shape, left_memory_), reordered,
                            groups_, finish_, interleaved_, stream_,
                            {rows_, finish_.out.shape.rows});
  }

  void multiply_folded() const {
    const BlockScaled& x = *quantized_of(a_);
    if (plan_.makes_left) fold_rows_of(x, left_memory_);
    if (plan_.makes_right) fold_rows_of(weights_, right_memory_);
    multiply(multiply_sm90_grouped, multiply_sm90_columns,
             folded_view(x.scheme, x.shape, left_memory_),
             folded_view(weights_.scheme, weights_.shape, right_memory_));
  }
  void fold_rows_of(const BlockScaled& q, void* memory) const {
    constexpr bool finds_spreads = false;  // nobody asks for them
    fold(function, q, memory, stream_, kernels::Follows::behind, {}, {}, finds_spreads);
  }

  const std::int32_t* rows_;  // that are copied; null: all, as they are
  const CudaGroupedPlan& plan_;
  const bool of_columns_;
  const GemmOperand& a_;
  const GemmOperand left_;  // without what was made of it
  const BlockScaled& weights_;
  const DeviceGroups& groups_;
  const CoreFinish& finish_;
  void *left_memory_, *right_memory_, *interleaved_;
  Stream stream_;
};

}  // namespace

void grouped_gemm_as(const CudaGemmCapabilities& capabilities, const GemmOperand& a,
                     const GemmRightOperand& b, const Groups& groups, const Buffer& out,
                     const GroupedGemmOptions& options, Workspace workspace, Stream stream,
                     const GatedOutput* gated) {
  PlannedOperand copies(a);
  copies.shape.rows = out.shape.rows;
  const CudaGroupedPlan plan =
      plan_grouped_cuda(copies, b, groups, options.precision, capabilities);
  if (out.shape.size() == 0) return;
  check_grouped_workspace(workspace, plan.workspace_bytes, a, b, groups, out, options);
  const DeviceScope scope(out.device, stream, function);
  check_pointers(function, left_names, a);
  check_pointers(function, right_names, either_side(b));
  check_pointers(function, out, options.bias, workspace);
  check_device_pointer(function, "groups.ends", groups.ends, out.device);
  check_device_pointer(function, "rows", options.rows, out.device);
  check_device_pointer(function, "factors", options.factors, out.device);
  CoreFinish finish = core_finish(options.alpha, quantized_of(a), &source_of(b), options.bias, out);
  finish.beta = options.beta;
  DeviceGroups on_device{groups.ends, groups.count, options.factors};
  if (options.bias != nullptr) on_device.bias_step = options.bias->batch_stride;
  on_device.are_complete = options.groups_are_complete;
  const GroupedProduct product(plan, a, b, groups.of_columns, on_device, finish, options.rows,
                               workspace, stream);
  if (plan.path == GroupedPath::few_tokens) return product.multiply_few_tokens(gated);
  product.run();
  if (gated != nullptr) swiglu(function, out, gated->out, gated->options, stream);
}

}  // namespace mxkern::cuda
