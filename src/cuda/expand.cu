// cuda/expand.cu: launches of the expanding kernel.
#include "cuda/expand.h"

#include <variant>

#include "cuda/folded_rows.h"
#include "cuda/launch.h"
#include "cuda/spread_gate.h"
#include "mxkern/kernels/expand.cuh"

namespace mxkern::cuda {
namespace {

Device device_of(const GemmOperand& operand) {
  return visit_source(operand, [](const auto& source) { return source.device; });
}

// Each returns how many elements a lane takes at a time.
int put_source(const char* function, const BlockScaled& q, kernels::ExpandOperand& o) {
  check_device_pointer(function, "codes", q.codes, q.device);
  check_device_pointer(function, "scales", q.scales, q.device);
  o.scheme = q.scheme;
  o.codes = q.codes;
  o.code_row_bytes = code_row_bytes(q.scheme, q.shape.columns);
  o.scales = q.scales;
  o.scale_index = q.scale_index();
  o.scales_in_words = scales_in_words(o.scales, o.scale_index);
  return visit(q.scheme, [&](auto scheme) {
    using Unit = kernels::ExpandUnit<typename decltype(scheme)::Format>;
    o.is_whole =
        o.columns % Unit::codes == 0 && is_aligned(o.codes, o.code_row_bytes, Unit::alignment);
    return Unit::codes;
  });
}

int put_source(const char* function, const Buffer& x, kernels::ExpandOperand& o) {
  check_device_pointer(function, "x", x.data, x.device);
  o.dtype = x.dtype;
  o.x = x.data;
  o.batch_stride = x.batch_stride;
  o.row_stride = x.row_stride;
  o.is_whole = rows_are_aligned(x);
  return 8;
}

kernels::ExpandOperand kernel_operand(const char* function, const ExpandTask& task) {
  kernels::ExpandOperand o = {};
  if (task.operand == nullptr || is_expanded(*task.operand)) return o;
  const Shape shape = shape_of(*task.operand);
  const RowScaled view = expanded_view(*task.operand, task.memory);
  o.batch = shape.batch;
  o.rows = task.first.rows > 0 ? task.first.rows : shape.rows;
  o.columns = shape.columns;
  const int unit = visit_source(
      *task.operand, [&](const auto& source) { return put_source(function, source, o); });
  o.out.data = static_cast<bfloat16*>(const_cast<void*>(view.data));
  o.out.row_elements = view.row_bytes / 2;
  o.out.part_elements = view.part_bytes / 2;
  o.out.batch_elements = view.batch_bytes / 2;
  o.out.exponents = const_cast<std::int32_t*>(view.exponents);
  o.log2_team = kernels::log2_team(ceil_div(shape.columns, unit));
  o.groups = ceil_div(shape.batch * o.rows, kernels::team_threads >> o.log2_team);
  o.counters = zeroed_counters(task.first, shape.rows);
  return o;
}

// Behind a gate few thread blocks, which take turns: where it is closed, all they do is ask, and
// each of them asks all the spreads.
dim3 expand_grid(const char* function, const kernels::ExpandParameters& p) {
  const std::int64_t groups = p.operand[0].groups + p.operand[1].groups;
  return grid_of(p.gate.is_open ? groups
                                : std::min(groups, std::int64_t{2} * processor_count(function)));
}

void expand_one(const char* function, const kernels::ExpandParameters& p, Stream stream) {
  const auto launch_kind = [&]<class Kind>(TypeTag<Kind>) {
    launch<Start::early>(function, kernels::expand_kernel<Kind, expanded_exponent>,
                         expand_grid(function, p), kernels::team_threads, 0, stream, p);
  };
  const kernels::ExpandOperand& o = p.operand[0];
  if (o.groups == 0) return;
  if (o.codes != nullptr) {
    visit(o.scheme, [&](auto scheme) { launch_kind(TypeTag<decltype(scheme)>{}); });
  } else {
    visit(o.dtype, launch_kind);
  }
}

}  // namespace

void expand(const char* function, const ExpandTask& first, const ExpandTask& second,
            const CoreGate& gate, const RowScaled* left, const RowScaled* right, Stream stream,
            const ZeroedWords& zeroed) {
  const GemmOperand* any = first.operand != nullptr ? first.operand : second.operand;
  if (any == nullptr) return;
  const DeviceScope scope(device_of(*any), function);
  kernels::ExpandParameters p = {};
  p.operand[0] = kernel_operand(function, first);
  p.operand[1] = kernel_operand(function, second);
  p.gate = spread_gate(gate, left, right);
  if (!gate.is_open && p.operand[0].groups > 0 && p.operand[1].groups > 0) {
    launch<Start::early>(function, kernels::expand_both_kernel<expanded_exponent>,
                         expand_grid(function, p), kernels::team_threads, 0, stream, p);
    return;
  }
  kernels::ExpandParameters other = p;
  (p.operand[0].groups > 0 ? p : other).counters = {zeroed.data, zeroed.count};
  other.operand[0] = p.operand[1];
  other.operand[1] = p.operand[1] = {};
  if (p.operand[0].groups > 0) other.follows = kernels::Follows::beside;
  expand_one(function, p, stream);
  expand_one(function, other, stream);
}

}  // namespace mxkern::cuda
