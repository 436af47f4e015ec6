// bindings/block_scaled_object.h: instances of the Python classes BlockScaled and PreparedOperand:
// here alone their fields are read, and instances are made.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <optional>
#include <utility>

namespace mxkern::bindings {

// A class whose `count` fields are its __slots__. Each is read and written through the descriptor
// that Python keeps for it, by a function of a few nanoseconds that is looked up once: the limited
// API has no offsets, and to call the class would run its constructor in the interpreter.
template <int count>
class SlottedClass {
 public:
  using Fields = std::array<nanobind::object, count>;

  explicit SlottedClass(nanobind::object python_class) : type_(std::move(python_class)) {
    const nanobind::object names = nanobind::getattr(type_, "__slots__");
    if (nanobind::len(names) != count) nanobind::raise_type_error("expected %d slots", count);
    for (int i = 0; i < count; ++i) descriptors_[i] = nanobind::getattr(type_, names[i]);
    PyTypeObject* const kind = Py_TYPE(descriptors_[0].ptr());
    for (const nanobind::object& each : descriptors_) {
      if (Py_TYPE(each.ptr()) != kind) nanobind::raise_type_error("expected slots alone");
    }
    get_ = reinterpret_cast<descrgetfunc>(PyType_GetSlot(kind, Py_tp_descr_get));
    set_ = reinterpret_cast<descrsetfunc>(PyType_GetSlot(kind, Py_tp_descr_set));
    allocate_ = reinterpret_cast<allocfunc>(PyType_GetSlot(type(), Py_tp_alloc));
  }

  // True for an instance of the class itself, false for one of a subclass.
  bool made(nanobind::handle instance) const { return instance.type().ptr() == type_.ptr(); }

  // True for an instance of the class or of a subclass.
  bool is_instance(nanobind::handle value) const {
    if (made(value)) return true;
    const int found = PyObject_IsInstance(value.ptr(), type_.ptr());
    if (found < 0) PyErr_Clear();
    return found == 1;
  }

  // The fields of an instance, of a subclass too. Nothing for any other object, and for an instance
  // without all of them, as __new__ alone makes.
  std::optional<Fields> fields_of(nanobind::handle instance) const {
    if (!is_instance(instance)) return std::nullopt;
    Fields fields;
    for (int i = 0; i < count; ++i) {
      fields[i] = nanobind::steal(get_(descriptors_[i].ptr(), instance.ptr(), type_.ptr()));
      if (!fields[i].is_valid()) {
        PyErr_Clear();
        return std::nullopt;
      }
    }
    return fields;
  }

  template <class... Values>
  nanobind::object make(const Values&... values) const {
    static_assert(sizeof...(Values) == count, "an instance has all of its fields");
    nanobind::object instance = nanobind::steal(allocate_(type(), 0));
    if (!instance.is_valid()) nanobind::raise_python_error();
    int i = 0;
    const auto set = [&](nanobind::handle value) {
      return set_(descriptors_[i++].ptr(), instance.ptr(), value.ptr()) == 0;
    };
    if (!(set(values) && ...)) nanobind::raise_python_error();
    return instance;
  }

 private:
  PyTypeObject* type() const { return reinterpret_cast<PyTypeObject*>(type_.ptr()); }

  nanobind::object type_;
  std::array<nanobind::object, count> descriptors_;
  descrgetfunc get_;
  descrsetfunc set_;
  allocfunc allocate_;
};

// codes, scales, tensor_scale, scheme, shape, scale_layout
using BlockScaledClass = SlottedClass<6>;
// form, data, source, scheme, shape
using PreparedOperandClass = SlottedClass<5>;

}  // namespace mxkern::bindings
