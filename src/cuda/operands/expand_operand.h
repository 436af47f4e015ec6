// cuda/operands/expand_operand.h: an operand that is to be expanded, as kernels take it.
#pragma once

#include "cuda/operands/expand.h"
#include "cuda/operands/folded_rows.h"
#include "cuda/runtime/device_scope.h"
#include "mxkern/kernels/operands/expand.cuh"

namespace mxkern::cuda {

// How many elements of a kind, a scheme or the type of plain ones, a lane takes at a time.
template <class Kind>
constexpr int expand_unit() {
  if constexpr (requires { typename Kind::Format; }) {
    return kernels::ExpandUnit<typename Kind::Format>::codes;
  }
  return 8;
}

// Each returns how many elements a lane takes at a time.
inline int put_source(const char* function, const BlockScaled& q, kernels::ExpandOperand& o) {
  check_device_pointer(function, "codes", q.codes, q.device);
  check_device_pointer(function, "scales", q.scales, q.device);
  o.scheme = q.scheme;
  o.codes = q.codes;
  o.code_row_bytes = code_row_bytes(q.scheme, q.shape.columns);
  o.scales = q.scales;
  o.scale_index = q.scale_index();
  o.scales_in_words = scales_in_words(alignment_of(o.scales, 4), o.scale_index);
  return visit(q.scheme, [&](auto scheme) {
    using Unit = kernels::ExpandUnit<typename decltype(scheme)::Format>;
    o.is_whole =
        o.columns % Unit::codes == 0 && rows_start_on(o.codes, o.code_row_bytes, Unit::alignment);
    return expand_unit<decltype(scheme)>();
  });
}

inline int put_source(const char* function, const Buffer& x, kernels::ExpandOperand& o) {
  check_device_pointer(function, "x", x.data, x.device);
  o.dtype = x.dtype;
  o.x = x.data;
  o.batch_stride = x.batch_stride;
  o.row_stride = x.row_stride;
  o.is_whole = starts_on_16(x);
  return expand_unit<float>();
}

inline kernels::ExpandOperand expand_operand(const char* function, const ExpandTask& task) {
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
  o.counters = zeroed_counters(task.first, shape);
  return o;
}

}  // namespace mxkern::cuda
