// cuda/expand.cu: launches of the expanding kernel.
#include "cuda/expand.h"

#include <variant>

#include "cuda/launch.h"
#include "cuda/spread_gate.h"
#include "mxkern/kernels/expand.cuh"

namespace mxkern::cuda {
namespace {

const Shape& shape_of(const GemmOperand& operand) {
  return std::visit([](const auto& o) -> const Shape& { return o.shape; }, operand);
}

const Device& device_of(const GemmOperand& operand) {
  return std::visit([](const auto& o) -> const Device& { return o.device; }, operand);
}

int parts_of(const GemmOperand& operand) {
  const auto* plain = std::get_if<Buffer>(&operand);
  return plain != nullptr ? expanded_parts(plain->dtype) : 1;
}

bool has_exponents(const GemmOperand& operand) {
  if (const auto* plain = std::get_if<Buffer>(&operand)) return plain->dtype == DType::float32;
  return !facts_of(std::get<BlockScaled>(operand).scheme).has_tensor_scale;
}

kernels::ExpandOperand kernel_operand(const char* function, const ExpandTask& task) {
  kernels::ExpandOperand o = {};
  if (task.operand == nullptr || is_expanded(*task.operand)) return o;
  const Shape& shape = shape_of(*task.operand);
  const RowScaled view = expanded_view(*task.operand, task.memory);
  o.batch = shape.batch;
  o.rows = shape.rows;
  o.columns = shape.columns;
  if (const auto* q = std::get_if<BlockScaled>(task.operand)) {
    check_device_pointer(function, "codes", q->codes, q->device);
    check_device_pointer(function, "scales", q->scales, q->device);
    const int bits = facts_of(q->scheme).bits;
    o.scheme = q->scheme;
    o.codes = q->codes;
    o.code_row_bytes = code_row_bytes(q->scheme, shape.columns);
    o.scales = q->scales;
    o.scale_index = q->scale_index();
    o.vector_loads = is_aligned(o.codes, o.code_row_bytes, bits == 6 ? 2 : bits);
  } else {
    const Buffer& x = std::get<Buffer>(*task.operand);
    check_device_pointer(function, "x", x.data, x.device);
    o.dtype = x.dtype;
    o.x = x.data;
    o.batch_stride = x.batch_stride;
    o.row_stride = x.row_stride;
    o.vector_loads = rows_are_aligned(x);
  }
  o.out.data = static_cast<bfloat16*>(const_cast<void*>(view.data));
  o.out.row_elements = view.row_bytes / 2;
  o.out.part_elements = view.part_bytes / 2;
  o.out.batch_elements = view.batch_bytes / 2;
  o.out.exponents = const_cast<std::int32_t*>(view.exponents);
  o.log2_team = kernels::log2_team(ceil_div(shape.columns, 8));
  o.groups = ceil_div(shape.batch * shape.rows, std::int64_t{1} << (8 - o.log2_team));
  return o;
}

}  // namespace

bool is_expanded(const GemmOperand& operand) {
  const auto* plain = std::get_if<Buffer>(&operand);
  return plain != nullptr && plain->dtype == DType::bfloat16 && rows_are_aligned(*plain);
}

RowScaledLayout expanded_layout(const GemmOperand& operand) {
  if (is_expanded(operand)) return {};
  const Shape& shape = shape_of(operand);
  const int parts = parts_of(operand);
  const std::int64_t part_bytes = round_up(shape.columns * 2, 128);
  const std::int64_t row_bytes = part_bytes * parts;
  const std::int64_t rows = shape.batch * shape.rows;
  const std::int64_t exponents = round_up(rows * row_bytes, 256);
  const std::int64_t exponent_bytes =
      has_exponents(operand) ? round_up(rows * std::int64_t{sizeof(std::int32_t)}, 256) : 0;
  const std::int64_t bytes = exponents + exponent_bytes;
  return {row_bytes, part_bytes, shape.rows * row_bytes, exponents, bytes, bytes};
}

RowScaled expanded_view(const GemmOperand& operand, void* memory) {
  const Shape& shape = shape_of(operand);
  RowScaled view = {};
  view.element = CoreElement::bfloat16;
  view.batch = shape.batch;
  view.rows = shape.rows;
  view.columns = shape.columns;
  if (is_expanded(operand)) {
    const Buffer& x = std::get<Buffer>(operand);
    view.data = x.data;
    view.row_bytes = x.row_stride * 2;
    view.batch_bytes = x.batch_stride * 2;
    return view;
  }
  const RowScaledLayout layout = expanded_layout(operand);
  auto* bytes = static_cast<std::uint8_t*>(memory);
  view.data = bytes;
  view.row_bytes = layout.row_bytes;
  view.batch_bytes = layout.batch_bytes;
  if (has_exponents(operand)) {
    view.exponents = reinterpret_cast<const std::int32_t*>(bytes + layout.exponents);
  }
  view.parts = parts_of(operand);
  view.part_bytes = layout.part_bytes;
  return view;
}

void expand(const char* function, const ExpandTask& first, const ExpandTask& second,
            const CoreGate& gate, const RowScaled* left, const RowScaled* right, Stream stream) {
  const GemmOperand* any = first.operand != nullptr ? first.operand : second.operand;
  if (any == nullptr) return;
  const DeviceScope scope(device_of(*any), function);
  kernels::ExpandParameters p = {};
  p.operand[0] = kernel_operand(function, first);
  p.operand[1] = kernel_operand(function, second);
  p.gate = spread_gate(gate, left, right);
  // As many thread blocks as run at once: where the gate is closed, all that they do is ask.
  const std::int64_t groups = p.operand[0].groups + p.operand[1].groups;
  launch(
      function, kernels::expand_kernel<expanded_exponent>,
      grid_of(std::min<std::int64_t>(groups, kernels::expand_blocks * processor_count(function))),
      kernels::team_threads, 0, stream, p);
}

}  // namespace mxkern::cuda
