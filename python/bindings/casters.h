// bindings/casters.h: tuples of plain numbers from Python to the library's views of memory.
//
// A plan needs no memory. What it is made of arrives as
//   PlannedTensor    (dtype, batch, rows, columns)
//   PlannedOperand   the same, or (scheme, scale layout, batch, rows, columns), ahead of which what
//                    is prepared has its form and whether its source was kept
// where dtype, scheme, layout and form are positions in the library's lists. An address is an
// integer, None, or the capsule of NumPy's __array_struct__.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "mxkern/mxkern.h"

namespace mxkern::bindings {

// What the capsule of __array_struct__ points to, by NumPy's array interface protocol, version 3.
struct ArrayStruct {
  int two;
  int dimensions;
  char kind;
  int item_size;
  int flags;
  std::intptr_t* shape;
  std::intptr_t* strides;
  void* data;
};

// Of a CUDA device's index, or of less than 0 for the CPU.
inline Device numbered_device(std::int64_t index) {
  if (index < 0) return {};
  return {DeviceType::cuda, static_cast<int>(index)};
}

inline bool read_address(PyObject* object, void** address) {
  if (PyCapsule_CheckExact(object)) {
    const auto* array = static_cast<const ArrayStruct*>(PyCapsule_GetPointer(object, nullptr));
    if (array == nullptr || array->two != 2) return false;
    *address = array->data;
    return true;
  }
  if (object == Py_None) {
    *address = nullptr;
    return true;
  }
  *address = PyLong_AsVoidPtr(object);
  return *address != nullptr || PyErr_Occurred() == nullptr;
}

// The items of a tuple, one after the other.
class TupleReader {
 public:
  TupleReader(nanobind::handle tuple, Py_ssize_t size)
      : tuple_(tuple.ptr()),
        good_(PyTuple_CheckExact(tuple.ptr()) && PyTuple_Size(tuple.ptr()) == size) {}

  bool good() const { return good_; }

  std::int64_t integer() {
    if (!good_) return 0;
    const std::int64_t value = PyLong_AsLongLong(PyTuple_GetItem(tuple_, next_++));
    if (value == -1 && PyErr_Occurred() != nullptr) good_ = false;
    return value;
  }

  void* address() {
    void* value = nullptr;
    if (good_) good_ = read_address(PyTuple_GetItem(tuple_, next_++), &value);
    return value;
  }

  nanobind::handle item() {
    return good_ ? nanobind::handle(PyTuple_GetItem(tuple_, next_++)) : nanobind::handle();
  }

  Device device() { return numbered_device(integer()); }

  Shape shape() {
    const std::int64_t batch = integer();
    const std::int64_t rows = integer();
    const std::int64_t columns = integer();
    return {batch, rows, columns};
  }

 private:
  PyObject* tuple_;
  bool good_;
  Py_ssize_t next_ = 0;
};

// An address on its own, for scalars and scale buffers.
struct Address {
  void* value = nullptr;
};

}  // namespace mxkern::bindings

namespace nanobind::detail {

template <>
struct type_caster<mxkern::bindings::Address> {
  NB_TYPE_CASTER(mxkern::bindings::Address, const_name("object"))

  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    if (mxkern::bindings::read_address(source.ptr(), &value.value)) return true;
    PyErr_Clear();
    return false;
  }
};

template <>
struct type_caster<mxkern::PlannedTensor> {
  NB_TYPE_CASTER(mxkern::PlannedTensor, const_name("tuple[int, int, int, int]"))

  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    mxkern::bindings::TupleReader items(source, 4);
    const auto dtype = static_cast<mxkern::DType>(items.integer());
    value = {dtype, items.shape()};
    if (!items.good()) PyErr_Clear();
    return items.good();
  }
};

template <>
struct type_caster<mxkern::PlannedOperand> {
  NB_TYPE_CASTER(mxkern::PlannedOperand, const_name("tuple[int, ...]"))

  bool from_python(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    const Py_ssize_t size = PyTuple_CheckExact(source.ptr()) ? PyTuple_Size(source.ptr()) : 0;
    if (size == 4) {
      make_caster<mxkern::PlannedTensor> plain;
      const bool good = plain.from_python(source, flags, cleanup);
      value = plain.value;
      return good;
    }
    mxkern::bindings::TupleReader items(source, size == 7 ? 7 : 5);
    const auto form = size == 7 ? static_cast<mxkern::PreparedForm>(items.integer())
                                : mxkern::PreparedForm::source;
    const bool has_source = size != 7 || items.integer() != 0;
    const auto scheme = static_cast<mxkern::Scheme>(items.integer());
    const auto layout = static_cast<mxkern::ScaleLayout>(items.integer());
    value = mxkern::PlannedOperand(scheme, items.shape(), layout).prepared(form, has_source);
    if (!items.good()) PyErr_Clear();
    return items.good();
  }
};

}  // namespace nanobind::detail
