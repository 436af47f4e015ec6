// bindings/readers/numpy.h: NumPy arrays, read through __array_struct__.
#pragma once

#include <utility>

#include "readers/reader.h"

namespace mxkern::bindings {

class NumpyReader : public Reader {
 public:
  // dtypes: one for each Element.
  NumpyReader(nanobind::object adapter, nanobind::object array_type, nanobind::object empty,
              Objects dtypes)
      : Reader(std::move(adapter)),
        array_type_(std::move(array_type)),
        empty_(std::move(empty)),
        dtypes_(std::move(dtypes)) {}

  bool is_ready() const override { return true; }

  bool read(nanobind::handle x, Array& array, bool) const override {
    if (x.type().ptr() != array_type_.ptr()) return false;
    const int element = position_of(nanobind::getattr(x, dtype_), dtypes_);
    if (element < 0) return false;
    const nanobind::object capsule = nanobind::getattr(x, array_struct_);
    const auto* seen =
        static_cast<const ArrayStruct*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
    if (seen == nullptr) nanobind::raise_python_error();
    constexpr int dense = 0x1, ordinary = 0x100 | 0x200, writable = 0x400;
    if ((seen->flags & ordinary) != ordinary || seen->dimensions > Extents::most) return false;
    array.object = nanobind::borrow(x);
    array.data = seen->data;
    array.element = static_cast<Element>(element);
    array.device = {};
    array.is_writable = (seen->flags & writable) != 0;
    array.is_dense = (seen->flags & dense) != 0;
    array.extents.dimensions = seen->dimensions;
    for (int i = 0; i < seen->dimensions; ++i) array.extents.items[i] = seen->shape[i];
    array.strides.dimensions = 0;
    if (array.is_dense) return true;
    for (int i = 0; i < seen->dimensions; ++i) {
      if (seen->strides[i] % seen->item_size != 0) return false;
      array.strides.items[i] = seen->strides[i] / seen->item_size;
    }
    array.strides.dimensions = seen->dimensions;
    return true;
  }

  nanobind::object make(const Extents& extents, Element element, Device,
                        void*& data) const override {
    nanobind::object made =
        call_with(empty_, extents.tuple(), dtypes_[static_cast<std::size_t>(element)]);
    const nanobind::object capsule = nanobind::getattr(made, array_struct_);
    const auto* seen =
        static_cast<const ArrayStruct*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
    if (seen == nullptr) nanobind::raise_python_error();
    data = seen->data;
    return made;
  }

 private:
  nanobind::object array_type_, empty_;
  Objects dtypes_;
  nanobind::str dtype_{"dtype"}, array_struct_{"__array_struct__"};
};

}  // namespace mxkern::bindings
