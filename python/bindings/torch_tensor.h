// bindings/torch_tensor.h: what a call sees of PyTorch tensors, and how it makes new ones. What
// PyTorch raises comes as nanobind::python_error.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "casters.h"
#include "dlpack_table.h"
#include "extents.h"

namespace mxkern::bindings {

// A dense tensor on a CUDA device, without a gradient to keep.
struct TorchTensor {
  void* data = nullptr;
  int element = -1;  // position in the list of dtypes
  int device = 0;
  Extents extents;
};

class TorchTensors {
 public:
  // empty(shape, strides, dtype) makes a tensor on the current device, which current_device()
  // tells; None where there is one device. recorders: functions whose results are true while
  // something records PyTorch's operations; samples: a tensor of each of the dtypes that are told
  // apart.
  TorchTensors(nanobind::object tensor_type, nanobind::object empty,
               nanobind::object current_device, nanobind::object current_stream, Objects recorders,
               const Objects& samples)
      : tensor_type_(std::move(tensor_type)),
        empty_(std::move(empty)),
        current_device_(std::move(current_device)),
        current_stream_(std::move(current_stream)),
        recorders_(std::move(recorders)),
        table_(DlpackTable::of(tensor_type_)) {
    for (const nanobind::object& sample : samples) {
      dtypes_.push_back(attribute(sample, dtype_));
      DlpackTensor seen{};
      if (table_ != nullptr && table_->look(sample.ptr(), &seen) != 0) {
        PyErr_Clear();
        table_ = nullptr;
      }
      elements_.push_back(seen.element);
    }
  }

  // The tensor, or nothing where it is not ordinary. Tensors that wrap others, inside of a
  // transform, raise: they have no address.
  std::optional<TorchTensor> read(nanobind::handle x) const {
    if (x.type().ptr() != tensor_type_.ptr() || attribute(x, requires_grad_).ptr() != Py_False) {
      return std::nullopt;
    }
    std::optional<TorchTensor> tensor = table_ != nullptr ? read_from_table(x) : read_attributes(x);
    if (tensor.has_value() && !lies_in_memory(tensor->data)) return std::nullopt;
    return tensor;
  }

  // Whether a trace is under way, which would not hold what is done here.
  bool are_recorded() const {
    for (const nanobind::object& recorder : recorders_) {
      const nanobind::object state = nanobind::steal(PyObject_CallNoArgs(recorder.ptr()));
      if (!state.is_valid()) nanobind::raise_python_error();
      if (PyObject_IsTrue(state.ptr()) != 0) return true;
    }
    return false;
  }

  // Whether it reads as the negative of its memory.
  bool negated(nanobind::handle x) const { return called(x, is_neg_).ptr() != Py_False; }

  // A new dense tensor, whose address goes to `data`.
  template <class T>
  nanobind::object make(const Extents& extents, int element, int device, T*& data) const {
    Extents strides = extents;
    std::int64_t step = 1;
    for (int i = extents.dimensions - 1; i >= 0; --i) {
      strides.items[i] = step;
      step *= extents.items[i] > 0 ? extents.items[i] : 1;
    }
    nanobind::object made = nanobind::steal(PyObject_CallFunctionObjArgs(
        empty_.ptr(), extents.tuple().ptr(), strides.tuple().ptr(),
        dtypes_[static_cast<std::size_t>(element)].ptr(), static_cast<PyObject*>(nullptr)));
    if (!made.is_valid()) nanobind::raise_python_error();
    const std::optional<TorchTensor> tensor =
        table_ != nullptr ? read_from_table(made) : read_attributes(made);
    check(tensor.has_value() && tensor->device == device, "the current device is another one");
    data = static_cast<T*>(tensor->data);
    return made;
  }

  // Whether make() makes tensors there. One that it makes elsewhere would start CUDA on that
  // device.
  bool is_current(int device) const {
    return current_device_.is_none() || PyLong_AsLong(called(current_device_).ptr()) == device;
  }

  Stream current_stream(int device) const {
    Stream stream;
    if (table_ != nullptr) {
      if (table_->current_stream(dlpack_cuda, device, &stream.handle) != 0) {
        nanobind::raise_python_error();
      }
      return stream;
    }
    const nanobind::object handle = nanobind::steal(PyObject_CallFunctionObjArgs(
        current_stream_.ptr(), nanobind::int_(device).ptr(), static_cast<PyObject*>(nullptr)));
    if (!handle.is_valid()) nanobind::raise_python_error();
    stream.handle = PyLong_AsVoidPtr(handle.ptr());
    return stream;
  }

 private:
  // A tensor whose storage was freed has its offset for an address. No device's memory lies so low.
  static bool lies_in_memory(const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) >> 32 != 0;
  }

  void look(nanobind::handle x, DlpackTensor& seen) const {
    if (table_->look(x.ptr(), &seen) != 0) nanobind::raise_python_error();
  }

  std::optional<TorchTensor> read_from_table(nanobind::handle x) const {
    DlpackTensor seen;
    look(x, seen);
    if (seen.device_type != dlpack_cuda || seen.dimensions > Extents::most) return std::nullopt;
    TorchTensor tensor;
    tensor.data = static_cast<char*>(seen.data) + seen.byte_offset;
    tensor.device = seen.device;
    tensor.extents.dimensions = seen.dimensions;
    std::int64_t step = 1;
    bool dense = true;
    for (int i = seen.dimensions - 1; i >= 0; --i) {
      const std::int64_t extent = tensor.extents.items[i] = seen.shape[i];
      dense = dense && (extent == 1 || seen.strides == nullptr || seen.strides[i] == step);
      step *= extent;
    }
    if (!dense && step != 0) return std::nullopt;
    for (std::size_t i = 0; i < elements_.size(); ++i) {
      if (elements_[i] == seen.element) tensor.element = static_cast<int>(i);
    }
    return tensor;
  }

  std::optional<TorchTensor> read_attributes(nanobind::handle x) const {
    if (attribute(x, is_cuda_).ptr() != Py_True || called(x, is_contiguous_).ptr() != Py_True) {
      return std::nullopt;
    }
    const nanobind::object shape = attribute(x, shape_);
    TorchTensor tensor;
    tensor.extents.dimensions = static_cast<int>(PyTuple_Size(shape.ptr()));
    if (tensor.extents.dimensions > Extents::most) return std::nullopt;
    for (int i = 0; i < tensor.extents.dimensions; ++i) {
      tensor.extents.items[i] = PyLong_AsLongLong(PyTuple_GetItem(shape.ptr(), i));
    }
    tensor.device = static_cast<int>(PyLong_AsLong(called(x, get_device_).ptr()));
    tensor.element = position_of(attribute(x, dtype_), dtypes_);
    if (!read_address(called(x, data_ptr_).ptr(), &tensor.data)) nanobind::raise_python_error();
    return tensor;
  }

  static nanobind::object attribute(nanobind::handle x, const nanobind::object& name) {
    nanobind::object value = nanobind::steal(PyObject_GetAttr(x.ptr(), name.ptr()));
    if (!value.is_valid()) nanobind::raise_python_error();
    return value;
  }

  static nanobind::object called(nanobind::handle x, const nanobind::object& name) {
    nanobind::object value = nanobind::steal(
        PyObject_CallMethodObjArgs(x.ptr(), name.ptr(), static_cast<PyObject*>(nullptr)));
    if (!value.is_valid()) nanobind::raise_python_error();
    return value;
  }

  static nanobind::object called(const nanobind::object& function) {
    nanobind::object value = nanobind::steal(PyObject_CallNoArgs(function.ptr()));
    if (!value.is_valid()) nanobind::raise_python_error();
    return value;
  }

  nanobind::object tensor_type_;
  nanobind::object empty_;
  nanobind::object current_device_;
  nanobind::object current_stream_;
  Objects recorders_;
  const DlpackTable* table_;  // null in PyTorch before 2.10: attributes say the same
  Objects dtypes_;
  std::vector<DlpackElement> elements_;
  nanobind::str is_cuda_{"is_cuda"}, requires_grad_{"requires_grad"}, is_neg_{"is_neg"},
      dtype_{"dtype"}, shape_{"shape"}, get_device_{"get_device"}, is_contiguous_{"is_contiguous"},
      data_ptr_{"data_ptr"};
};

}  // namespace mxkern::bindings
