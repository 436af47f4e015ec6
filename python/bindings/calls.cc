// bindings/calls.cc: arrays as arguments, and memory for results.
#include "calls.h"

#include <cmath>

namespace nb = nanobind;

namespace mxkern::bindings {

int Call::scheme(nb::handle name) const {
  PyObject* position = PyDict_GetItemWithError(package().schemes.ptr(), name.ptr());
  if (position == nullptr) {
    PyErr_Clear();
    if (PyObject_IsTrue(fault("is_custom", name).ptr()) == 1) {
      const nb::object refusal = fault("custom_refusal", name);
      throw IsCustom(nb::cast<std::string>(refusal));
    }
    return nb::cast<int>(fault("scheme", name));
  }
  return static_cast<int>(PyLong_AsLong(position));
}

int Call::one_of(Name argument, nb::handle name, const Objects& names) const {
  const int position = position_of_name(name, names);
  if (position >= 0) return position;
  fault("unknown_name", argument, name, nb::cast(names));
  return position;
}

int Call::dtype(nb::handle dtype) const {
  const int position = position_of_name(dtype, package().dtype_names);
  return position >= 0 ? position : nb::cast<int>(fault("dtype", dtype));
}

float Call::number(Name argument, nb::handle value) const {
  if (PyFloat_CheckExact(value.ptr())) {
    const double number = PyFloat_AsDouble(value.ptr());
    const float nearest = nearest_float(number);
    if (std::isfinite(nearest)) return nearest;
  }
  return nearest_float(nb::cast<double>(fault("number", argument, value)));
}

float Call::beta(nb::handle beta, nb::handle out) const {
  const float factor = number("beta", beta);
  if (factor != 0.0f && out.is_none()) fault("beta_needs_out", beta);
  return factor;
}

GemmPrecision Call::precision(nb::handle name) const {
  return static_cast<GemmPrecision>(one_of("precision", name, package().precision_names));
}

std::string Call::renamed(const std::string& message) const {
  const std::size_t end = message.find(": ");
  if (end == std::string::npos || message.find(' ') < end) return message;
  return function + message.substr(end);
}

void Call::read_description(const nb::object& entered, Array& array) const {
  const nb::object seen = reader_->adapter.attr("look")(entered);
  TupleReader items(seen, 7);
  array.object = entered;
  array.data = items.address();
  array.element = static_cast<Element>(items.integer());
  array.device = items.device();
  const nb::handle shape = items.item(), strides = items.item();
  array.is_dense = items.item().ptr() == Py_True;
  array.is_writable = items.item().ptr() == Py_True;
  if (!items.good()) nb::raise_python_error();
  const auto read = [this](nb::handle tuple, Extents& extents) {
    extents.dimensions = static_cast<int>(PyTuple_Size(tuple.ptr()));
    check(extents.dimensions <= Extents::most, function, ": an array has ", extents.dimensions,
          " dimensions; expected 64 at most");
    for (int i = 0; i < extents.dimensions; ++i) {
      extents.items[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple.ptr(), i));
    }
  };
  read(shape, array.extents);
  array.strides.dimensions = 0;
  if (!array.is_dense && !strides.is_none()) read(strides, array.strides);
}

void Call::look_through_adapter(Name argument, nb::handle x, bool is_e2m1, Array& array) {
  nb::object entered = fault("enter", argument, x, reader_->adapter);
  if (is_e2m1) entered = reader_->adapter.attr("packed_e2m1_bytes")(entered);
  read_description(entered, array);
}

Array Call::look(Name argument, nb::handle x, bool is_e2m1) {
  Array array;
  if (!is_ready_ || calls_.of_type(x) != reader_ || !reader_->read(x, array, is_detached_)) {
    look_through_adapter(argument, x, is_e2m1, array);
  }
  if (!like_.is_valid()) like_ = array.object;
  return array;
}

void Call::make_dense(Array& array) const {
  read_description(reader_->adapter.attr("dense")(array.object), array);
}

Array Call::look_plain(Name argument, nb::handle x) {
  Array array = look(argument, x);
  check_plain(argument, array);
  return array;
}

void Call::check_plain(Name argument, Array& array) {
  if (!is_plain(array.element)) {
    read_description(fault("plain", argument, array.object, reader_->adapter), array);
  }
  if (array.extents.dimensions == 0) fault("no_dimensions", argument);
}

Plain Call::plain(Name argument, nb::handle x) { return plain(look_plain(argument, x)); }

Plain Call::plain(Array array) {
  Plain read;
  read.array = array;
  std::optional<RowStrides> rows = array.rows();
  if (!rows) {
    make_dense(array);
    rows = array.rows();
  }
  read.view = array.buffer(*rows);
  read.memory = array.object;
  return read;
}

Array Call::numbers(Name argument, nb::handle x, Element element) {
  const auto& name = package().element_names[static_cast<std::size_t>(element)];
  if (x.is_none() || PyTuple_Check(x.ptr()) || PyList_Check(x.ptr())) {
    fault("no_numbers", argument, x, name);
  }
  Array array = look(argument, x);
  if (array.element != element) {
    reader_->adapter.attr("refuse_dtype")(function, argument.text(), array.object,
                                          nb::make_tuple(name));
  }
  return array;
}

void Call::other_device(Name argument, const Array& array) const {
  fault("same_device", argument, reader_->adapter, array.object, like_);
}

nb::object Call::make(const Extents& extents, Element element, Device device, void*& data) {
  if (is_ready_) {
    nb::object made = reader_->make(extents, element, device, data);
    if (made.is_valid()) return made;
  }
  const auto& name = package().element_names[static_cast<std::size_t>(element)];
  nb::object made = reader_->adapter.attr("empty")(function, extents.tuple(), name, like_);
  Array array;
  read_description(made, array);
  data = array.data;
  return made;
}

Array Call::written(Name argument, nb::handle out, const Extents& extents,
                    std::initializer_list<Element> elements, Device device, bool rows_apart) {
  Array array;
  const bool is_read =
      is_ready_ && calls_.of_type(out) == reader_ && reader_->read(out, array, false);
  const auto is_wanted = [&] {
    bool found = false;
    for (const Element element : elements) found = found || element == array.element;
    return found && array.extents == extents && array.device == device && array.is_writable &&
           (array.is_dense || (rows_apart && array.rows()));
  };
  if (!is_read || !is_wanted()) {
    nb::list names;
    for (const Element element : elements) {
      names.append(package().element_names[static_cast<std::size_t>(element)]);
    }
    read_description(
        fault("out", argument, out, reader_->adapter, extents.tuple(), nb::tuple(names), like_),
        array);
    if (!array.is_dense && !(rows_apart && array.rows())) {
      fault("not_dense", argument, array.object, rows_apart);
    }
  }
  check_apart(argument, array.span());
  return array;
}

void Call::check_apart(Name argument, const Span& span) {
  for (const Span& other : taken_) {
    if (!apart({span, other})) fault("overlap", argument);
  }
  taken_.push_back(span);
}

Output Call::output(nb::handle out, const Extents& extents, int dtype, Device device) {
  Output made;
  made.is_given = !out.is_none();
  const auto element = static_cast<Element>(dtype);
  if (made.is_given) {
    const Array array = written("out", out, extents, {element}, device, true);
    made.array = nb::borrow(out);
    made.view = array.buffer(*array.rows());
  } else {
    void* data = nullptr;
    made.array = make(extents, element, device, data);
    made.view = Buffer::dense(data, all_dtypes[dtype], extents.shape(), device);
  }
  return made;
}

Output Call::output(nb::handle out, const Extents& extents, Device device, int default_dtype) {
  if (out.is_none()) return output(out, extents, default_dtype, device);
  const Array array = written(
      "out", out, extents, {Element::float32, Element::float16, Element::bfloat16}, device, true);
  const auto own = static_cast<int>(array.element);
  if (default_dtype != 0 && default_dtype != own) fault("other_dtype", default_dtype, own);
  return {nb::borrow(out), array.buffer(*array.rows()), true};
}

DenseOutput Call::dense_output(Name argument, nb::handle out, const Extents& extents,
                               Element element, Device device) {
  DenseOutput made{nb::borrow(out), nullptr, !out.is_none()};
  if (made.is_given) {
    made.data = written(argument, out, extents, {element}, device, false).data;
  } else {
    made.array = make(extents, element, device, made.data);
  }
  return made;
}

const float* Call::scalar(Name argument, nb::handle value, Device device, bool is_factor,
                          Span& span) {
  const bool on_cpu = device.type == DeviceType::cpu;
  if (on_cpu && is_factor && PyFloat_CheckExact(value.ptr())) {
    const double number = PyFloat_AsDouble(value.ptr());
    float& kept = factors_[factor_count_++];
    const float factor = kept = nearest_float(number);
    const bool is_right = number >= 0.0 && std::isfinite(factor) && (factor != 0 || number == 0);
    if (!is_right) fault("factor", argument, number);
    span = {nullptr, 0};
    return &kept;
  }
  Array array;
  const bool is_read =
      is_ready_ && calls_.of_type(value) == reader_ && reader_->read(value, array, false);
  if (!is_read || array.element != Element::float32 || array.extents.dimensions != 0 ||
      array.device != device) {
    read_description(fault("float32_scalar", argument, value, reader_->adapter, like_), array);
  }
  kept_.push_back(array.object);
  span = array.span();
  const auto* found = static_cast<const float*>(array.data);
  if (on_cpu && is_factor && !(*found >= 0.0f && std::isfinite(*found))) {
    fault("factor", argument, static_cast<double>(*found));
  }
  return found;
}

void Call::read_scalars(nb::handle amax, nb::handle tensor_scale, int scheme, Device device,
                        QuantizeOptions& options) {
  if (amax.is_none() && tensor_scale.is_none()) return;
  if (!facts_of(all_schemes[scheme]).has_tensor_scale ||
      (!amax.is_none() && !tensor_scale.is_none())) {
    fault("scalars", scheme, amax, tensor_scale);
  }
  Span span;
  if (amax.is_none()) {
    options.tensor_scale = scalar("tensor_scale", tensor_scale, device, true, span);
  } else {
    options.amax = scalar("amax", amax, device, true, span);
  }
  take(span);
}

void Call::make_found_amax(int scheme, Device device, QuantizeOptions& options) {
  const bool is_given = options.amax != nullptr || options.tensor_scale != nullptr;
  if (device.type == DeviceType::cpu || is_given ||
      !facts_of(all_schemes[scheme]).has_tensor_scale) {
    return;
  }
  void* data = nullptr;
  kept_.push_back(make(Extents{}, Element::float32, device, data));
  options.found_amax = static_cast<float*>(data);
}

Stream Call::stream(Device device) const {
  Stream stream;
  if (device.type == DeviceType::cpu || (is_ready_ && reader_->read_stream(device, stream))) {
    return stream;
  }
  const nb::object handle = reader_->adapter.attr("stream")(like_);
  if (!read_address(handle.ptr(), &stream.handle)) nb::raise_python_error();
  return stream;
}

nb::object Call::leave(const nb::object& array, nb::handle like) const {
  return reader_->converts ? nb::object(reader_->adapter.attr("leave")(array, like)) : array;
}

void Call::mark_written(nb::handle array) const {
  if (!reader_->marks_written || array.is_none() || reader_->mark_written(array)) return;
  reader_->adapter.attr("mark_written")(array);
}

StreamScope::StreamScope(const Call& call, nb::handle stream, nb::handle array) {
  if (stream.is_none()) return;
  scope_ = call.fault("stream", stream, call.reader().adapter, array);
  scope_.attr("__enter__")();
}

StreamScope::~StreamScope() {
  if (!scope_.is_valid()) return;
  PyObject* left = PyObject_CallMethod(scope_.ptr(), "__exit__", "OOO", Py_None, Py_None, Py_None);
  Py_XDECREF(left);
  if (left == nullptr) PyErr_Clear();
}

}  // namespace mxkern::bindings
