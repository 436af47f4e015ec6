// bindings/numpy_array.h: a NumPy array as a call sees it.
#pragma once

#include <nanobind/nanobind.h>

#include "casters.h"
#include "extents.h"

namespace mxkern::bindings {

// What ArrayStruct::flags must have: row-major, aligned, in the machine's byte order.
inline constexpr int dense_flags = 0x1 | 0x100 | 0x200;

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

  bool writable() const { return (fields_->flags & 0x400) != 0; }

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

}  // namespace mxkern::bindings
