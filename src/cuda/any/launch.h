// cuda/any/launch.h: what launches of kernels for tensors of any type begin with.
#pragma once

#include "cuda/runtime/launch.h"
#include "mxkern/custom.h"
#include "mxkern/kernels/any/parameters.h"

namespace mxkern::cuda {

inline kernels::AnyView view_of(const Buffer& x) { return {x.data, x.row_stride, x.batch_stride}; }

// Calls visitor(TypeTag<T>{}) with the type of the elements.
template <class Visitor>
void visit_any(const AnyBuffer& x, Visitor&& visitor) {
  if (x.is_float64) return visitor(TypeTag<double>{});
  visit(x.dtype, visitor);
}

// Whether eight elements of a row, from a multiple of eight on, start on 16 bytes.
inline bool starts_on_16_any(const AnyBuffer& x) {
  const std::int64_t size = x.is_float64 ? 8 : static_cast<std::int64_t>(size_of(x.dtype));
  const bool rows = x.shape.rows == 1 || x.row_stride * size % 16 == 0;
  const bool batches = x.shape.batch == 1 || x.batch_stride * size % 16 == 0;
  return starts_on(x.data, 16) && rows && batches;
}

}  // namespace mxkern::cuda
