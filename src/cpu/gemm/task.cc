// cpu/gemm/task.cc: the arguments of a matrix product as the CPU's loops take them.
#include "cpu/gemm/task.h"

#include <cmath>

#include "mxkern/tensor/panel_layout.h"

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

// Of either kind of b, but for panels.
template <class Right>
cpu::GemmTask task_of(const GemmOperand& a, const Right& b, const Buffer& out,
                      const GemmOptions& options, double factor) {
  cpu::GemmTask task{};
  const bool merged = merges_batch(a, b, out);
  factor *= static_cast<double>(options.alpha) * tensor_scale_of(b);
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

cpu::GemmTask make_task(const GemmOperand& a, const BlockScaled& b, const void* panels,
                        const Buffer& out, const GemmOptions& options, double factor) {
  cpu::GemmTask task = task_of(a, b, out, options, factor);
  task.right.panels = static_cast<const std::uint8_t*>(panels);
  if (b.shape.batch != 1) {
    task.right_batch_panels = PanelLayout(b.scheme, b.shape.rows, b.shape.columns).matrix_bytes;
  }
  return task;
}

cpu::GemmTask make_task(const GemmOperand& a, const Buffer& b, const Buffer& out,
                        const GemmOptions& options) {
  return task_of(a, b, out, options, 1.0);
}

}  // namespace mxkern
