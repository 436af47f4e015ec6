// bindings/custom/arrays.h: plain arrays that may hold float64, as arguments and results.
#pragma once

#include "calls.h"
#include "mxkern/custom.h"

namespace mxkern::bindings {

// A plain tensor of any type, float64 too.
struct AnyPlain {
  AnyBuffer view;
  Array array;  // as it was given
  nanobind::object memory;
};

inline AnyPlain any_plain(Call& call, Name argument, nanobind::handle x) {
  AnyPlain read;
  Array array = call.look(argument, x);
  if (array.element != Element::float64) {
    if (!is_plain(array.element)) {
      const nanobind::object memory =
          call.fault("plain_or_float64", argument, array.object, call.reader().adapter);
      return any_plain(call, argument, memory);
    }
    if (array.extents.dimensions == 0) call.fault("no_dimensions", argument);
    const Plain plain = call.plain(array);
    return {plain.view, plain.array, plain.memory};
  }
  if (array.extents.dimensions == 0) call.fault("no_dimensions", argument);
  read.array = array;
  if (!array.rows()) call.make_dense(array);
  const RowStrides rows = *array.rows();
  read.view = {Buffer::dense(array.data, DType::float32, array.extents.shape(), array.device),
               true};
  read.view.row_stride = rows.row;
  read.view.batch_stride = rows.batch;
  read.memory = array.object;
  return read;
}

struct AnyOutput {
  nanobind::object array;
  AnyBuffer view;
  bool is_given;
};

inline AnyOutput any_output(Call& call, nanobind::handle out, const Extents& extents,
                            Element element, Device device) {
  if (element != Element::float64) {
    const Output made = call.output(out, extents, static_cast<int>(element), device);
    return {made.array, made.view, made.is_given};
  }
  AnyOutput made{nanobind::borrow(out), {}, !out.is_none()};
  if (made.is_given) {
    const Array array = call.written("out", out, extents, {element}, device, true);
    const RowStrides rows = *array.rows();
    made.view = {Buffer::dense(array.data, DType::float32, extents.shape(), device), true};
    made.view.row_stride = rows.row;
    made.view.batch_stride = rows.batch;
    return made;
  }
  void* data = nullptr;
  made.array = call.make(extents, element, device, data);
  made.view = {Buffer::dense(data, DType::float32, extents.shape(), device), true};
  return made;
}

}  // namespace mxkern::bindings
