// cuda/gemm/gemm.cu: runs the plan of a matrix product: operands made ready, then the kernels.
#include "cuda/gemm/gemm.h"

#include "check/gemm.h"
#include "cuda/runtime/check_pointers.h"
#include "cuda/gemm/epilogue.h"
#include "cuda/operands/upcast_operand.h"
#include "cuda/operands/expand.h"
#include "cuda/operands/fold.h"
#include "cuda/operands/gated_operands.h"
#include "cuda/runtime/device_scope.h"
#include "cuda/gemm/blackwell/multiply.h"
#include "cuda/decode/multiply.h"
#include "cuda/gemm/portable.h"
#include "cuda/gemm/hopper/multiply.h"
#include "cuda/runtime/zero_words.h"
#include "check/gemm_operand.h"

namespace mxkern::cuda {
namespace {

constexpr const char* function = "gemm";

// What is multiplied: the views of a call.
struct Operands {
  const GemmOperand& left;
  GemmOperand right;
  const Buffer& out;
};

CoreFinish finish_of(const Operands& operands, const GemmOptions& options) {
  CoreFinish finish = core_finish(options.alpha, quantized_of(operands.left),
                                  quantized_of(operands.right), options.bias, operands.out);
  finish.beta = options.beta;
  return finish;
}

using kernels::Follows;

// One product in the making.
class Product {
 public:
  Product(const CudaGemmPlan& plan, const GemmProblem& problem, const Operands& operands,
          const GemmOptions& options, Workspace workspace, Stream stream)
      : plan_(plan),
        problem_(problem),
        operands_(operands),
        finish_(finish_of(operands, options)),
        right_is_complete_(options.right_is_complete),
        memory_(static_cast<std::uint8_t*>(workspace.data)),
        stream_(stream) {}

  void run() {
    switch (plan_.path) {
      case CudaGemmPath::nothing: return;
      case CudaGemmPath::folded: return multiply_folded({});
      case CudaGemmPath::exact: return multiply_exact({}, nullptr, nullptr);
      case CudaGemmPath::folded_or_exact: return multiply_fused_dispatch();
      case CudaGemmPath::portable: return multiply_exact({}, nullptr, nullptr);
      case CudaGemmPath::few_tokens: return multiply_few_tokens();
      case CudaGemmPath::few_folded: return multiply_few_folded();
      case CudaGemmPath::blackwell: return multiply_on_blackwell();
    }
  }

 private:
  // Where the folded rows are, prepared or in the working memory.
  void* folded_memory(const GemmOperand& operand, const SidePlan& side) const {
    return side.folds ? memory_ + side.folded : prepared_of(operand)->data;
  }

  RowScaled folded(const GemmOperand& operand, const SidePlan& side) const {
    const BlockScaled& q = *quantized_of(operand);
    RowScaled view = folded_view(q.scheme, q.shape, folded_memory(operand, side));
    view.late = late_source(operand, side);
    return view;
  }

  // Rows of a side that are made ready ahead of the product, where those are not all.
  FirstRows first_rows(const SidePlan& side) const {
    return {side.first_rows, reinterpret_cast<std::uint32_t*>(memory_ + side.progress),
            plan_.path == CudaGemmPath::folded_or_exact, side.first_columns};
  }

  // What the product makes the others of.
  LateSource late_source(const GemmOperand& operand, const SidePlan& side) const {
    if (side.first_rows == 0) return {};
    const BlockScaled& q = *quantized_of(operand);
    return {q.codes, q.scales, q.scale_index(), first_rows(side), expanded_exponent};
  }

  FoldTask fold_task(const GemmOperand& operand, const SidePlan& side) const {
    return {quantized_of(operand), folded_memory(operand, side), first_rows(side)};
  }

  void fold_operand(const GemmOperand& operand, const SidePlan& side, Follows follows,
                    const ZeroedWords& zeroed) const {
    if (!side.folds) return;
    fold(function, *quantized_of(operand), folded_memory(operand, side), stream_, follows, zeroed,
         first_rows(side), plan_.path != CudaGemmPath::folded);
  }

  // Where the product adds up tiles that are divided along K. The first kernel that makes an
  // operand ready sets the counters to zeros.
  PartMemory part_memory() const {
    if (plan_.part_bytes == 0) return {};
    return {memory_ + plan_.part_sums, plan_.part_bytes, plan_.part_counters};
  }
  ZeroedWords zeroed() const {
    const std::size_t begin = plan_.is_in_one_kernel ? plan_.row_counters : plan_.part_sums;
    const auto words = static_cast<int>((plan_.part_sums - begin) / sizeof(std::uint32_t));
    return {reinterpret_cast<std::uint32_t*>(memory_ + begin),
            words + static_cast<int>(plan_.part_counters)};
  }

  RowScaled expanded(const GemmOperand& operand, const SidePlan& side) const {
    const Shape shape = shape_of(operand);
    if (shape.columns == 0) {  // no element, no power of two
      return {CoreElement::bfloat16, memory_, shape.batch, shape.rows, 0, 0, 0, nullptr, nullptr};
    }
    void* memory = side.expands       ? memory_ + side.expanded
                   : side.is_prepared ? prepared_of(operand)->data
                                      : nullptr;
    RowScaled view = expanded_view(as_source(operand), memory);
    view.late = late_source(operand, side);
    return view;
  }

  void fold_operands() const {
    if (!plan_.left.folds && !plan_.right.folds) zero_words(function, zeroed(), stream_);
    const bool both = plan_.left.folds && plan_.right.folds;
    if (both && fold_both(function, fold_task(operands_.left, plan_.left),
                          fold_task(operands_.right, plan_.right), stream_, zeroed(),
                          plan_.path != CudaGemmPath::folded)) {
      return;
    }
    fold_operand(operands_.left, plan_.left, Follows::behind, zeroed());
    fold_operand(operands_.right, plan_.right, both ? Follows::beside : Follows::behind,
                 both ? ZeroedWords{} : zeroed());
  }

  void multiply_folded(const CoreGate& gate) const {
    fold_operands();
    multiply(folded(operands_.left, plan_.left), folded(operands_.right, plan_.right), gate);
  }

  // For an exact product without a gate. The first kernel sets the counters to zeros.
  void make_operands(const ExpandTask& first, const ExpandTask& second) const {
    if (first.operand != nullptr || second.operand != nullptr) {
      expand(function, first, second, stream_, zeroed());
    } else {
      zero_words(function, zeroed(), stream_);
    }
  }

  // left_folded and right_folded: what the gate asks.
  void multiply_exact(const CoreGate& gate, const RowScaled* left_folded,
                      const RowScaled* right_folded) {
    const GemmOperand left = as_source(operands_.left), right = as_source(operands_.right);
    ExpandTask first, second;
    if (plan_.left.expands) first = {&left, memory_ + plan_.left.expanded, first_rows(plan_.left)};
    if (plan_.right.expands) {
      second = {&right, memory_ + plan_.right.expanded, first_rows(plan_.right)};
    }
    if (gate.is_open) {
      make_operands(first, second);
    } else {
      gated_operands(function, first, second, gate, *left_folded, *right_folded, stream_);
    }
    RowScaled a = plan_.left.decodes ? decoded_view(*quantized_of(operands_.left))
                                     : expanded(operands_.left, plan_.left);
    RowScaled b = plan_.right.decodes ? decoded_view(*quantized_of(operands_.right))
                                      : expanded(operands_.right, plan_.right);
    if (left_folded != nullptr) a.spreads = left_folded->spreads;
    if (right_folded != nullptr) b.spreads = right_folded->spreads;
    multiply(a, b, gate);
  }

  void multiply_fused_dispatch() {
    CoreGate gate;
    gate.is_open = false;
    gate.left_limit = limit_of(operands_.left);
    gate.right_limit = limit_of(operands_.right);
    gate.wants_narrow = true;
    if (plan_.is_in_one_kernel) return multiply_in_one_kernel(gate);
    multiply_folded(gate);
    const RowScaled left = folded(operands_.left, plan_.left);
    const RowScaled right = folded(operands_.right, plan_.right);
    gate.wants_narrow = false;
    gate.is_settled = true;  // the folded product has waited for them
    multiply_exact(gate, &left, &right);
  }

  // `source`: the operand's codes.
  FusedDispatchOperand either(const GemmOperand& operand, const SidePlan& side,
                              const GemmOperand& source) const {
    FusedDispatchOperand both = {folded(operand, side), expanded(operand, side), {}};
    both.expanded.late = {};  // the folded rows' are
    if (side.expands) both.task = {&source, memory_ + side.expanded};
    return both;
  }

  void multiply_in_one_kernel(const CoreGate& gate) const {
    fold_operands();
    const GemmOperand left = as_source(operands_.left), right = as_source(operands_.right);
    auto* progress = reinterpret_cast<std::uint32_t*>(memory_ + plan_.row_counters);
    multiply_fused_dispatch_sm90(function, either(operands_.left, plan_.left, left),
                                 either(operands_.right, plan_.right, right), progress, finish_,
                                 gate, stream_, part_memory());
  }

  ReorderedWeights reordered() const {
    const BlockScaled& q = *quantized_of(operands_.right);
    const auto* data = static_cast<const std::uint8_t*>(prepared_of(operands_.right)->data);
    return {q.scheme, q.shape, data, q.device};
  }

  void multiply_few_folded() const {
    fold_operands();
    if (!right_is_complete_) stand_between(function, stream_);
    multiply_decode_folded(plan_.few, function, folded(operands_.left, plan_.left), reordered(),
                           finish_, memory_ + plan_.interleaved, stream_);
  }

  void multiply_few_tokens() const {
    const ReorderedWeights weights = reordered();
    if (plan_.left.expands) {
      const GemmOperand left = as_source(operands_.left);
      expand(function, {&left, memory_ + plan_.left.expanded}, {}, stream_);
    } else if (!right_is_complete_) {
      stand_between(function, stream_);
    }
    if (const auto* x = std::get_if<Buffer>(&operands_.left)) {
      return multiply_decode(function, *x, weights, finish_, {memory_, plan_.workspace_bytes},
                             stream_, {}, &plan_.few);
    }
    const RowScaled rows = expanded(operands_.left, plan_.left);
    multiply_decode(function, tokens_of(operands_.left, const_cast<void*>(rows.data)), weights,
                    finish_, {}, stream_, {rows.exponents, plan_.left.expands}, &plan_.few);
  }

  void multiply_on_blackwell() const {
    const Workspace workspace{memory_, plan_.workspace_bytes};
    check<Unsupported>(
        multiply_blackwell(function, *quantized_of(operands_.left), *quantized_of(operands_.right),
                           finish_, workspace, stream_),
        "gemm: this build has no kernel for this product on Blackwell; pass precision exact");
  }

  static std::uint8_t limit_of(const GemmOperand& operand) {
    return static_cast<std::uint8_t>(fold_facts(quantized_of(operand)->scheme).spread_limit);
  }

  void multiply(RowScaled left, const RowScaled& right, const CoreGate& gate) const {
    CoreFinish finish = finish_;
    const Shape shape = multiplied_shape(problem_);
    if (shape.batch != finish.out.shape.batch) {
      left.rows = shape.rows;
      left.batch = 1;
      left.batch_bytes = left.rows * left.row_bytes;
      finish.out.shape = shape;
      finish.out.batch_stride = shape.rows * finish.out.row_stride;
    }
    if (plan_.sums == 1) return multiply_part(left, right, finish, gate);
    const std::int64_t step = plan_.sum_columns(left.columns);
    for (std::int64_t part = 0; part < plan_.sums; ++part) {
      multiply_part(columns_of(left, part * step, step), columns_of(right, part * step, step),
                    finish, gate);
      // The other parts are added to it.
      finish.beta = 1.0f;
      finish.bias = nullptr;
    }
  }

  // Those from `begin` on, at most so many.
  static RowScaled columns_of(RowScaled x, std::int64_t begin, std::int64_t count) {
    x.data = static_cast<const std::uint8_t*>(x.data) + begin * bytes_of(x.element);
    x.columns = std::min(count, x.columns - begin);
    return x;
  }

  void multiply_part(const RowScaled& left, const RowScaled& right, const CoreFinish& finish,
                     const CoreGate& gate) const {
    if (plan_.path == CudaGemmPath::portable) {
      multiply_portable(function, left, right, finish, gate, stream_);
    } else {
      multiply_sm90(function, left, right, finish, gate, stream_, part_memory());
    }
  }

  const CudaGemmPlan& plan_;
  const GemmProblem& problem_;
  const Operands& operands_;
  CoreFinish finish_;
  bool right_is_complete_;
  std::uint8_t* memory_;
  Stream stream_;
};

}  // namespace

CudaGemmCapabilities gemm_capabilities(const char* caller, Device device) {
  CudaGemmCapabilities capabilities;
  capabilities.major = attribute_of(caller, cudaDevAttrComputeCapabilityMajor, device.index);
  capabilities.minor = attribute_of(caller, cudaDevAttrComputeCapabilityMinor, device.index);
  capabilities.processors = attribute_of(caller, cudaDevAttrMultiProcessorCount, device.index);
#if !defined(MXKERN_HAS_SM90)
  capabilities.has_hopper_kernels = false;
#endif
  capabilities.has_blackwell_kernels =
      has_blackwell_kernels(blackwell_of(capabilities.major, capabilities.minor));
  return capabilities;
}

void gemm(const CudaGemmPlan& plan, const GemmProblem& problem, const GemmOperand& a,
          const GemmRightOperand& b, const Buffer& out, const GemmOptions& options,
          Workspace workspace, Stream stream) {
  check_gemm_workspace(workspace, plan.workspace_bytes, a, b, out, options);
  const Operands operands{a, either_side(b), out};
  const DeviceScope scope(out.device, stream, function);
  check_pointers(function, left_names, operands.left);
  check_pointers(function, right_names, operands.right);
  check_pointers(function, out, options.bias, workspace);
  Product(plan, problem, operands, options, workspace, stream).run();
}

void gemm_as(const CudaGemmCapabilities& capabilities, const GemmOperand& a,
             const GemmRightOperand& b, const Buffer& out, const GemmOptions& options,
             Workspace workspace, Stream stream) {
  const GemmProblem problem(a, b, out, options);
  gemm(plan_gemm_cuda(problem, capabilities), problem, a, b, out, options, workspace, stream);
}

}  // namespace mxkern::cuda
