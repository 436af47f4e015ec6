// bindings/readers/torch.h: PyTorch tensors on the CPU and on CUDA devices, read through PyTorch's
// table of C functions, before PyTorch 2.10 through attributes. What PyTorch raises comes as
// nanobind::python_error.
#pragma once

#include <utility>
#include <vector>

#include "readers/dlpack_table.h"
#include "readers/reader.h"

namespace mxkern::bindings {

// Functions of PyTorch that are looked up once. None where this PyTorch lacks one.
struct TorchFunctions {
  nanobind::object tensor_type, parameter_type;
  nanobind::object empty_cpu, empty_cuda;  // (shape, strides, dtype); on the current device
  nanobind::object current_device;         // None where there is one device
  nanobind::object current_stream;
  nanobind::object increment_version;  // (tensor): autograd hears that it was written to
  nanobind::object forward_ad;         // the module whose _current_level is 0 or more inside of jvp
  Objects recorders;  // their results are true while something records PyTorch's operations
};

class TorchReader : public Reader {
 public:
  // samples: a tensor of the dtype of each Element.
  TorchReader(nanobind::object adapter, TorchFunctions functions, const Objects& samples)
      : Reader(std::move(adapter)),
        torch_(std::move(functions)),
        table_(DlpackTable::of(torch_.tensor_type)) {
    for (const nanobind::object& sample : samples) {
      dtypes_.push_back(nanobind::getattr(sample, dtype_));
      DlpackTensor seen{};
      if (table_ != nullptr && table_->look(sample.ptr(), &seen) != 0) {
        PyErr_Clear();
        table_ = nullptr;
      }
      elements_.push_back(seen.element);
    }
  }

  bool is_ready() const override {
    for (const nanobind::object& recorder : torch_.recorders) {
      if (PyObject_IsTrue(called(recorder).ptr()) != 0) return false;
    }
    return PyLong_AsLong(nanobind::getattr(torch_.forward_ad, level_).ptr()) < 0;
  }

  // Tensors that wrap others, inside of a transform, have no address, and say so by an error.
  bool read(nanobind::handle x, Array& array, bool detached) const override {
    const PyObject* type = x.type().ptr();
    if (type != torch_.tensor_type.ptr() && type != torch_.parameter_type.ptr()) return false;
    try {
      if (!detached && nanobind::getattr(x, requires_grad_).ptr() != Py_False) return false;
      if (!(table_ != nullptr ? read_table(x, array) : read_attributes(x, array))) return false;
      if (is_plain(array.element) && called(x, is_neg_).ptr() != Py_False) return false;
      if (!lies_in_storage(x, array)) return false;
    } catch (const nanobind::python_error&) {
      return false;
    }
    array.object = nanobind::borrow(x);
    array.is_writable = true;
    return true;
  }

  nanobind::object make(const Extents& extents, Element element, Device device,
                        void*& data) const override {
    const bool on_cpu = device.type == DeviceType::cpu;
    const nanobind::object& empty = on_cpu ? torch_.empty_cpu : torch_.empty_cuda;
    if (empty.is_none() || !(on_cpu || is_current(device.index))) return {};
    Extents strides = extents;
    std::int64_t step = 1;
    for (int i = extents.dimensions - 1; i >= 0; --i) {
      strides.items[i] = step;
      step *= extents.items[i] > 0 ? extents.items[i] : 1;
    }
    nanobind::object made = nanobind::steal(PyObject_CallFunctionObjArgs(
        empty.ptr(), extents.tuple().ptr(), strides.tuple().ptr(),
        dtypes_[static_cast<std::size_t>(element)].ptr(), static_cast<PyObject*>(nullptr)));
    if (!made.is_valid()) nanobind::raise_python_error();
    Array array;
    const bool is_read = table_ != nullptr ? read_table(made, array) : read_attributes(made, array);
    if (!is_read || array.device != device) return {};  // a transform sees to what is made
    data = array.data;
    return made;
  }

  bool read_stream(Device device, Stream& stream) const override {
    if (device.type == DeviceType::cpu) return true;
    if (table_ != nullptr) {
      if (table_->current_stream(dlpack_cuda, device.index, &stream.handle) != 0) {
        nanobind::raise_python_error();
      }
      return true;
    }
    if (torch_.current_stream.is_none()) return false;
    stream.handle = PyLong_AsVoidPtr(torch_.current_stream(device.index).ptr());
    return true;
  }

  bool mark_written(nanobind::handle x) const override {
    if (torch_.increment_version.is_none()) return false;
    if (called(x, is_inference_).ptr() == Py_True) return true;  // which has no version
    torch_.increment_version(x);
    return true;
  }

 private:
  // empty_cuda starts CUDA on the device that is the current one.
  bool is_current(int device) const {
    return torch_.current_device.is_none() ||
           PyLong_AsLong(called(torch_.current_device).ptr()) == device;
  }

  // A storage may have been freed, or made smaller than the tensor. No CUDA device's memory lies as
  // low as the offset that a freed one has for an address.
  bool lies_in_storage(nanobind::handle x, const Array& array) const {
    if (array.device.type == DeviceType::cuda) {
      return reinterpret_cast<std::uintptr_t>(array.data) >> 32 != 0;
    }
    if (array.data == nullptr) return array.extents.are_empty();
    const Span span = array.span();
    if (span.begin == span.end) return true;
    const nanobind::object storage = called(x, untyped_storage_);
    const std::int64_t bytes = PyLong_AsLongLong(called(storage, nbytes_).ptr());
    const std::int64_t offset = PyLong_AsLongLong(called(x, storage_offset_).ptr());
    const auto needed = static_cast<std::int64_t>(span.end - span.begin);
    return offset * size_of(array.element) + needed <= bytes;
  }

  bool read_table(nanobind::handle x, Array& array) const {
    DlpackTensor seen;
    if (table_->look(x.ptr(), &seen) != 0) nanobind::raise_python_error();
    const bool on_cuda = seen.device_type == dlpack_cuda;
    if ((!on_cuda && seen.device_type != dlpack_cpu) || seen.dimensions > Extents::most) {
      return false;
    }
    array.data = static_cast<char*>(seen.data) + seen.byte_offset;
    array.device = on_cuda ? Device{DeviceType::cuda, seen.device} : Device{};
    array.extents.dimensions = array.strides.dimensions = seen.dimensions;
    for (int i = 0; i < seen.dimensions; ++i) {
      array.extents.items[i] = seen.shape[i];
      array.strides.items[i] = seen.strides == nullptr ? 0 : seen.strides[i];
    }
    array.is_dense = seen.strides == nullptr || is_dense(array);
    array.element = Element::other;
    for (std::size_t i = 0; i < elements_.size(); ++i) {
      if (elements_[i] == seen.element) array.element = static_cast<Element>(i);
    }
    return array.element != Element::other && starts_on_element(array);
  }

  static bool is_dense(const Array& array) {
    std::int64_t step = 1;
    bool dense = true;
    for (int i = array.extents.dimensions - 1; i >= 0; --i) {
      const std::int64_t extent = array.extents.items[i];
      if (extent == 0) return true;
      dense = dense && (extent == 1 || array.strides.items[i] == step);
      step *= extent;
    }
    return dense;
  }

  static bool starts_on_element(const Array& array) {
    const auto address = reinterpret_cast<std::uintptr_t>(array.data);
    return address % static_cast<std::uintptr_t>(size_of(array.element)) == 0;
  }

  // Reads dense tensors alone.
  bool read_attributes(nanobind::handle x, Array& array) const {
    const bool on_cuda = nanobind::getattr(x, is_cuda_).ptr() == Py_True;
    if (!on_cuda && nanobind::getattr(x, is_cpu_).ptr() != Py_True) return false;
    if (called(x, is_contiguous_).ptr() != Py_True) return false;
    const nanobind::object dtype = nanobind::getattr(x, dtype_);
    // Backwards, as uint8 holds what an older PyTorch has no dtype for.
    int element = static_cast<int>(dtypes_.size()) - 1;
    while (element >= 0 && !dtypes_[static_cast<std::size_t>(element)].is(dtype)) --element;
    const nanobind::object shape = nanobind::getattr(x, shape_);
    const Py_ssize_t dimensions = PyTuple_Size(shape.ptr());
    if (element < 0 || dimensions < 0 || dimensions > Extents::most) return false;
    array.element = static_cast<Element>(element);
    array.extents.dimensions = static_cast<int>(dimensions);
    for (int i = 0; i < array.extents.dimensions; ++i) {
      array.extents.items[i] = PyLong_AsLongLong(PyTuple_GetItem(shape.ptr(), i));
    }
    array.strides.dimensions = 0;
    array.is_dense = true;
    array.device = {};
    if (on_cuda) {
      array.device = {DeviceType::cuda,
                      static_cast<int>(PyLong_AsLong(called(x, get_device_).ptr()))};
    }
    if (!read_address(called(x, data_ptr_).ptr(), &array.data)) nanobind::raise_python_error();
    return starts_on_element(array);
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

  TorchFunctions torch_;
  const DlpackTable* table_;  // null in PyTorch before 2.10
  Objects dtypes_;
  std::vector<DlpackElement> elements_;
  nanobind::str is_cuda_{"is_cuda"}, is_cpu_{"is_cpu"}, requires_grad_{"requires_grad"},
      is_neg_{"is_neg"}, dtype_{"dtype"}, shape_{"shape"}, get_device_{"get_device"},
      is_contiguous_{"is_contiguous"}, data_ptr_{"data_ptr"}, untyped_storage_{"untyped_storage"},
      nbytes_{"nbytes"}, is_inference_{"is_inference"}, storage_offset_{"storage_offset"},
      level_{"_current_level"};
};

}  // namespace mxkern::bindings
