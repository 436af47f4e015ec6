// cuda/expand.cu: launches of the expanding kernel.
#include "cuda/expand.h"

#include <variant>

#include "cuda/code_stream.h"
#include "cuda/launch.h"
#include "cuda/spread_gate.h"
#include "mxkern/kernels/expand.cuh"

namespace mxkern::cuda {
namespace {

Device device_of(const GemmOperand& operand) {
  return visit_source(operand, [](const auto& source) { return source.device; });
}

kernels::ExpandOperand kernel_operand(const char* function, const ExpandTask& task) {
  kernels::ExpandOperand o = {};
  if (task.operand == nullptr || is_expanded(*task.operand)) return o;
  const RowScaled view = expanded_view(*task.operand, task.memory);
  if (const auto* q = std::get_if<BlockScaled>(task.operand)) {
    o.stream = code_stream(function, *q);
    o.scheme = q->scheme;
  } else {
    const Buffer& x = std::get<Buffer>(*task.operand);
    check_device_pointer(function, "x", x.data, x.device);
    o.stream = plain_stream(x.shape);
    o.plain = {x.dtype, x.data, x.batch_stride, x.row_stride, rows_are_aligned(x)};
  }
  o.out.data = static_cast<bfloat16*>(const_cast<void*>(view.data));
  o.out.row_elements = view.row_bytes / 2;
  o.out.part_elements = view.part_bytes / 2;
  o.out.batch_elements = view.batch_bytes / 2;
  o.out.exponents = const_cast<std::int32_t*>(view.exponents);
  return o;
}

}  // namespace

void expand(const char* function, const ExpandTask& first, const ExpandTask& second,
            const CoreGate& gate, const RowScaled* left, const RowScaled* right, Stream stream) {
  const GemmOperand* any = first.operand != nullptr ? first.operand : second.operand;
  if (any == nullptr) return;
  const DeviceScope scope(device_of(*any), function);
  kernels::ExpandParameters p = {};
  p.operand[0] = kernel_operand(function, first);
  p.operand[1] = kernel_operand(function, second);
  p.gate = spread_gate(gate, left, right);
  const std::int64_t groups = p.operand[0].stream.groups + p.operand[1].stream.groups;
  const int stage_bytes =
      std::max(p.operand[0].stream.stage_bytes, p.operand[1].stream.stage_bytes);
  // As many thread blocks as run at once: where the gate is closed, all that they do is ask.
  const std::int64_t most = kernels::expand_blocks * processor_count(function);
  launch(function, kernels::expand_kernel<expanded_exponent>, grid_of(std::min(groups, most)),
         kernels::team_threads, kernels::stream_stages * stage_bytes, stream, p);
}

}  // namespace mxkern::cuda
