// gemm.cc: the matrix product: arguments checked, a plan made, the device's kernels called.
#include "mxkern/gemm.h"

#include <cmath>
#include <cstdint>

#include "check_gemm.h"
#include "cpu/gemm.h"
#include "gemm_operand.h"
#include "gemm_with.h"
#include "mxkern/core/error.h"
#include "mxkern/core/float_environment.h"
#if defined(MXKERN_HAS_CUDA)
#include "cuda/gemm.h"
#endif

namespace mxkern {
namespace {

cpu::GemmMatrix matrix_of(const BlockScaled& q, std::int64_t rows) {
  ScaleIndex index = q.scale_index();
  index.rows = rows;
  return {.is_plain = false,
          .scheme = q.scheme,
          .dtype = DType::float32,
          .data = q.codes,
          .row_bytes = code_row_bytes(q.scheme, q.shape.columns),
          .scales = q.scales,
          .scale_index = index,
          .rows = rows,
          .k = q.shape.columns};
}

cpu::GemmMatrix matrix_of(const Buffer& x, std::int64_t rows) {
  return {.is_plain = true,
          .scheme = {},
          .dtype = x.dtype,
          .data = static_cast<const std::uint8_t*>(x.data),
          .row_bytes = x.row_stride * static_cast<std::int64_t>(size_of(x.dtype)),
          .scales = nullptr,
          .scale_index = {},
          .rows = rows,
          .k = x.shape.columns};
}

std::int64_t bytes_between(const BlockScaled& q) {
  return q.shape.rows * code_row_bytes(q.scheme, q.shape.columns);
}

std::int64_t bytes_between(const Buffer& x) {
  return x.batch_stride * static_cast<std::int64_t>(size_of(x.dtype));
}

// Rows of neighbouring matrices follow one another as rows of one matrix do.
bool follows_on(const BlockScaled& q) { return q.scale_layout == ScaleLayout::row_major; }
bool follows_on(const Buffer& x) { return is_one_matrix(x); }

// A batch that shares its right operand is one product with more rows, where memory allows it.
bool merges_batch(const GemmOperand& a, const BlockScaled& b, const Buffer& out) {
  return b.shape.batch == 1 && follows_on(out) &&
         visit_source(a, [](const auto& left) { return follows_on(left); });
}

double tensor_scale_of(const BlockScaled& q) {
  return q.tensor_scale == nullptr || !facts_of(q.scheme).has_tensor_scale ? 1.0 : *q.tensor_scale;
}
double tensor_scale_of(const Buffer&) { return 1.0; }

// alpha and the tensor scales as a factor near 1 and a power of two: their product may lie far
// outside of float32 where the result does not.
void set_factor(double value, cpu::GemmFinish& finish) {
  finish.exponent = 0;
  if (std::isfinite(value)) value = std::frexp(value, &finish.exponent);
  finish.factor = static_cast<float>(value);
}

cpu::GemmTask make_task(const GemmOperand& a, const BlockScaled& b, const Buffer& out,
                        const GemmOptions& options) {
  cpu::GemmTask task{};
  const bool merged = merges_batch(a, b, out);
  double factor = static_cast<double>(options.alpha) * tensor_scale_of(b);
  visit_source(a, [&](const auto& left) {
    const Shape& shape = left.shape;
    task.left = matrix_of(left, merged ? shape.batch * shape.rows : shape.rows);
    task.left_batch_bytes = bytes_between(left);
    task.left_batch_scales = task.left.scale_index.size();
    factor *= tensor_scale_of(left);
  });
  task.right = matrix_of(b, b.shape.rows);
  if (b.shape.batch != 1) {
    task.right_batch_bytes = bytes_between(b);
    task.right_batch_scales = task.right.scale_index.size();
  }
  task.out = static_cast<std::uint8_t*>(out.data);
  task.out_batch_bytes = bytes_between(out);
  task.finish.beta = options.beta;
  task.finish.dtype = out.dtype;
  task.finish.row_stride = out.row_stride;
  set_factor(factor, task.finish);
  if (options.bias != nullptr) {
    task.bias = options.bias->data;
    task.bias_dtype = options.bias->dtype;
  }
  return task;
}

}  // namespace

void check_gemm_of_cpu(const GemmOperand& a, const GemmRightOperand& b, GemmPrecision precision) {
  check<Unsupported>(precision != GemmPrecision::folded,
                     "gemm: precision is folded, and the CPU's products are exact; leave precision "
                     "out");
  const auto check_source = [](const char* argument, const PreparedOperand* p) {
    const bool is_there = p == nullptr || p->form == PreparedForm::source || p->has_source();
    check<Unsupported>(is_there, "gemm: ", argument,
                       " was prepared without its codes and scales, which are what the CPU "
                       "multiplies; keep the source, or multiply on the device");
  };
  check_source("a", prepared_of(a));
  check_source("b", prepared_of(b));
}

GemmProblem gemm_problem(const GemmOperand& a, const BlockScaled& b, const Buffer& out) {
  GemmProblem problem{.batch = out.shape.batch,
                      .m = out.shape.rows,
                      .n = out.shape.columns,
                      .k = b.shape.columns,
                      .right_scheme = b.scheme,
                      .out_dtype = out.dtype};
  if (merges_batch(a, b, out)) {
    problem.m *= problem.batch;
    problem.batch = 1;
  }
  if (const BlockScaled* left = quantized_of(a)) {
    problem.left_scheme = left->scheme;
  } else {
    problem.left_is_plain = true;
    problem.left_dtype = std::get<Buffer>(a).dtype;
  }
  return problem;
}

void gemm_with(const GemmPlan& plan, const GemmOperand& a, const BlockScaled& b, const Buffer& out,
               const GemmOptions& options, Workspace workspace) {
  check_gemm_workspace(workspace, plan.workspace_bytes, a, b, out, options);
  const FloatEnvironment environment;
  cpu::gemm(make_task(a, b, out, options), plan, workspace.data);
}

void gemm(const GemmOperand& given_a, const GemmRightOperand& b, const Buffer& given_out,
          const GemmOptions& options, Workspace workspace, Stream stream) {
  check_gemm(given_a, b, given_out, options);
  const GemmOperand a = with_strides(given_a);
  const Buffer out = with_strides(given_out);
#if defined(MXKERN_HAS_CUDA)
  if (out.device.type == DeviceType::cuda) {
    return cuda::gemm(a, b, out, options, workspace, stream);
  }
#endif
  static_cast<void>(stream);  // the CPU has finished when the call returns
  check_gemm_of_cpu(a, b, options.precision);
  if (out.shape.size() == 0) return;
  const BlockScaled& right = source_of(b);
  const GemmPlan plan = plan_gemm(gemm_problem(a, right, out), cpu::gemm_capabilities());
  gemm_with(plan, a, right, out, options, workspace);
}

std::size_t gemm_workspace_bytes(const GemmOperand& given_a, const GemmRightOperand& b,
                                 const Buffer& given_out, const GemmOptions& options) {
  check_gemm(given_a, b, given_out, options);
  const GemmOperand a = with_strides(given_a);
  const Buffer out = with_strides(given_out);
  if (out.shape.size() == 0) return 0;
#if defined(MXKERN_HAS_CUDA)
  if (out.device.type == DeviceType::cuda) return cuda::gemm_workspace_bytes(a, b, out, options);
#endif
  check_gemm_of_cpu(a, b, options.precision);
  return plan_gemm(gemm_problem(a, source_of(b), out), cpu::gemm_capabilities()).workspace_bytes;
}

}  // namespace mxkern
