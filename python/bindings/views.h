// bindings/views.h: the library's views of memory as tuples of numbers:
//   Buffer           (address, dtype, device, batch, rows, columns, row stride, batch stride)
//   BlockScaled      (scheme, scale layout, device, batch, rows, columns, codes, scales, tensor
//                    scale)
//   PreparedOperand  (form, BlockScaled, address, bytes)
// where dtype, scheme, layout and form are positions in the library's lists, and device is -1 for
// the CPU or a CUDA index.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <variant>

#include "mxkern/mxkern.h"

namespace mxkern::bindings {

inline std::int64_t number_of(Device device) {
  return device.type == DeviceType::cpu ? -1 : device.index;
}

inline nanobind::object address_of(const void* data) {
  if (data == nullptr) return nanobind::none();
  return nanobind::cast(reinterpret_cast<std::uintptr_t>(data));
}

inline nanobind::object tuple_of(const Buffer& x) {
  return nanobind::make_tuple(address_of(x.data), static_cast<int>(x.dtype), number_of(x.device),
                              x.shape.batch, x.shape.rows, x.shape.columns, x.row_stride,
                              x.batch_stride);
}

inline nanobind::object tuple_of(const BlockScaled& q) {
  return nanobind::make_tuple(static_cast<int>(q.scheme), static_cast<int>(q.scale_layout),
                              number_of(q.device), q.shape.batch, q.shape.rows, q.shape.columns,
                              address_of(q.codes), address_of(q.scales),
                              address_of(q.tensor_scale));
}

inline nanobind::object tuple_of(const PreparedOperand& p) {
  return nanobind::make_tuple(static_cast<int>(p.form), tuple_of(p.source), address_of(p.data),
                              p.bytes);
}

template <class... Views>
nanobind::object tuple_of(const std::variant<Views...>& operand) {
  return std::visit([](const auto& view) { return tuple_of(view); }, operand);
}

}  // namespace mxkern::bindings
