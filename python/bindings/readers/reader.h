// bindings/readers/reader.h: how arrays of a framework are read and made.
#pragma once

#include "readers/array.h"

namespace mxkern::bindings {

// One a framework. What a reader leaves, the framework's adapter in Python reads and makes: arrays
// that are out of the ordinary, and those of frameworks without a reader of their own. Errors of
// arrays are worded there, too.
class Reader {
 public:
  explicit Reader(nanobind::object adapter)
      : adapter(std::move(adapter)),
        programs(nanobind::getattr(this->adapter, "traced_calls")),
        converts(nanobind::cast<bool>(nanobind::getattr(this->adapter, "converts"))),
        marks_written(nanobind::cast<bool>(nanobind::getattr(this->adapter, "marks_written"))) {}
  virtual ~Reader() = default;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // False while the framework records what happens to arrays: the adapter reads and makes them
  // then.
  virtual bool is_ready() const { return false; }
  // False where the adapter has to look. detached: a call whose caller sees to gradients.
  virtual bool read(nanobind::handle, Array&, bool detached) const {
    static_cast<void>(detached);
    return false;
  }
  // A new dense array on a device; nothing where the adapter has to make it.
  virtual nanobind::object make(const Extents&, Element, Device, void*&) const { return {}; }
  // The stream that work on a device goes to; false where the adapter knows it.
  virtual bool read_stream(Device device, Stream&) const { return device.type == DeviceType::cpu; }

  // Tells the framework that the values of an array change; false where the adapter has to.
  virtual bool mark_written(nanobind::handle) const { return false; }

  nanobind::object adapter;
  nanobind::object programs;  // what makes a program of an operation; None for most frameworks
  bool converts;              // results are made elsewhere, and come home through adapter.leave
  bool marks_written;         // the framework wants to hear that the values of an array change
};

}  // namespace mxkern::bindings
