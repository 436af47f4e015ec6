// bindings/numpy_array.h: a NumPy array as a call sees it, and how results are made.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>

#include "casters.h"

namespace mxkern::bindings {

// What ArrayStruct::flags must have: row-major, aligned, in the machine's byte order.
inline constexpr int dense_flags = 0x1 | 0x100 | 0x200;

// The extents of an array; one of more dimensions is not `dense`.
struct Extents {
  static constexpr int most = 64;

  std::array<std::int64_t, most> items;
  int dimensions = 0;

  std::int64_t& last() { return items[dimensions - 1]; }

  Shape shape() const {
    Shape shape;
    shape.columns = items[dimensions - 1];
    if (dimensions > 1) shape.rows = items[dimensions - 2];
    for (int i = 0; i < dimensions - 2; ++i) shape.batch *= items[i];
    return shape;
  }

  nanobind::object tuple() const {
    nanobind::object tuple = nanobind::steal(PyTuple_New(dimensions));
    if (!tuple.is_valid()) nanobind::raise_python_error();
    for (int i = 0; i < dimensions; ++i) {
      PyTuple_SetItem(tuple.ptr(), i, PyLong_FromLongLong(items[i]));
    }
    return tuple;
  }

  friend bool operator==(const Extents& a, const Extents& b) {
    if (a.dimensions != b.dimensions) return false;
    for (int i = 0; i < a.dimensions; ++i) {
      if (a.items[i] != b.items[i]) return false;
    }
    return true;
  }
};

// Reads an array through its __array_struct__, whose capsule keeps it alive.
class NumpyArray {
 public:
  // attribute: the string "__array_struct__".
  NumpyArray(nanobind::handle array, nanobind::handle attribute) {
    capsule_ = nanobind::steal(PyObject_GetAttr(array.ptr(), attribute.ptr()));
    if (!capsule_.is_valid()) nanobind::raise_python_error();
    fields_ = static_cast<const ArrayStruct*>(PyCapsule_GetPointer(capsule_.ptr(), nullptr));
    if (fields_ == nullptr) nanobind::raise_python_error();
  }

  bool dense() const {
    return (fields_->flags & dense_flags) == dense_flags && fields_->dimensions <= Extents::most;
  }

  Extents extents() const {
    Extents extents;
    extents.dimensions = fields_->dimensions;
    for (int i = 0; i < extents.dimensions; ++i) extents.items[i] = fields_->shape[i];
    return extents;
  }

  template <class T>
  T* data() const {
    return static_cast<T*>(fields_->data);
  }

 private:
  nanobind::object capsule_;
  const ArrayStruct* fields_;
};

// function(first, second)
inline nanobind::object call_with(nanobind::handle function, nanobind::handle first,
                                  nanobind::handle second) {
  nanobind::object result = nanobind::steal(
      PyObject_CallFunctionObjArgs(function.ptr(), first.ptr(), second.ptr(), nullptr));
  if (!result.is_valid()) nanobind::raise_python_error();
  return result;
}

}  // namespace mxkern::bindings
