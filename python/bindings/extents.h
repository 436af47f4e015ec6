// bindings/extents.h: the extents of arrays, and small helpers of calls that take whole arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "mxkern/mxkern.h"

namespace mxkern::bindings {

using Objects = std::vector<nanobind::object>;

inline int position_of(nanobind::handle item, const Objects& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (item.is(items[i])) return static_cast<int>(i);
  }
  return -1;
}

// Equal strings need not be one object.
inline int position_of_name(nanobind::handle item, const Objects& names) {
  const int position = position_of(item, names);
  if (position >= 0 || !PyUnicode_Check(item.ptr())) return position;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (PyUnicode_Compare(item.ptr(), names[i].ptr()) == 0) return static_cast<int>(i);
  }
  return -1;
}

// The extents of an array; one of more dimensions is not `dense`.
struct Extents {
  static constexpr int most = 64;

  std::array<std::int64_t, most> items;
  int dimensions = 0;

  Extents() = default;
  explicit Extents(std::initializer_list<std::int64_t> each)
      : dimensions(static_cast<int>(each.size())) {
    std::copy(each.begin(), each.end(), items.begin());
  }
  Extents(const Extents& other) : dimensions(other.dimensions) {
    std::copy_n(other.items.begin(), dimensions, items.begin());
  }
  Extents& operator=(const Extents& other) {
    dimensions = other.dimensions;
    std::copy_n(other.items.begin(), dimensions, items.begin());
    return *this;
  }

  std::int64_t& last() { return items[dimensions - 1]; }

  bool are_empty() const {
    return std::find(items.begin(), items.begin() + dimensions, 0) != items.begin() + dimensions;
  }

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

// Of a matrix, or of each of a batch: of two dimensions or more.
inline Extents transposed(Extents extents) {
  std::swap(extents.last(), extents.items[extents.dimensions - 2]);
  return extents;
}

// True where all extents but the last two are the same.
inline bool same_batch(const Extents& a, const Extents& b) {
  return a.dimensions == b.dimensions &&
         std::equal(a.items.begin(), a.items.begin() + a.dimensions - 2, b.items.begin());
}

// The extents of the codes and of the scales of a tensor.
inline Extents code_extents(Scheme scheme, Extents extents) {
  extents.last() = code_row_bytes(scheme, extents.last());
  return extents;
}

inline Extents scale_extents(const ScaleIndex& index, Extents extents) {
  if (index.layout == ScaleLayout::row_major) {
    extents.last() = index.blocks;
  } else {
    if (extents.dimensions > 1) --extents.dimensions;
    extents.last() = index.size();
  }
  return extents;
}

// A tuple of one extent or more, each small enough to calculate with.
inline bool read_extents(nanobind::handle shape, Extents& extents) {
  if (!PyTuple_CheckExact(shape.ptr())) return false;
  const Py_ssize_t dimensions = PyTuple_Size(shape.ptr());
  if (dimensions < 1 || dimensions > Extents::most) return false;
  extents.dimensions = static_cast<int>(dimensions);
  for (int i = 0; i < extents.dimensions; ++i) {
    PyObject* extent = PyTuple_GetItem(shape.ptr(), i);
    if (!PyLong_CheckExact(extent)) return false;
    int overflow = 0;
    extents.items[i] = PyLong_AsLongLongAndOverflow(extent, &overflow);
    constexpr std::int64_t largest = std::int64_t{1} << 48;
    if (overflow != 0 || extents.items[i] < 0 || extents.items[i] > largest) return false;
  }
  return true;
}

// Where bytes lie, as a number: comparing pointers into different objects is not defined.
struct Span {
  std::uintptr_t begin, end;

  Span() = default;
  Span(const void* data, std::int64_t bytes)
      : begin(reinterpret_cast<std::uintptr_t>(data)),
        end(begin + static_cast<std::uintptr_t>(data == nullptr ? 0 : bytes)) {}
};

// Some spans, without memory of their own.
class Spans {
 public:
  Spans() = default;
  Spans(std::initializer_list<Span> spans) {
    for (const Span& span : spans) push_back(span);
  }

  void push_back(const Span& span) {
    check(count_ < most, "mxkern: a call has more than ", most, " parts");
    items_[count_++] = span;
  }
  const Span* begin() const { return items_; }
  const Span* end() const { return items_ + count_; }

 private:
  static constexpr int most = 24;  // quantize_both writes six parts, and reads an array and scalars

  Span items_[most];
  int count_ = 0;
};

// Whether no two of them have a byte in common.
inline bool apart(std::initializer_list<Span> spans) {
  for (const Span* a = spans.begin(); a != spans.end(); ++a) {
    for (const Span* b = spans.begin(); b != a; ++b) {
      if (a->begin < b->end && b->begin < a->end) return false;
    }
  }
  return true;
}

// function(first, second)
inline nanobind::object call_with(nanobind::handle function, nanobind::handle first,
                                  nanobind::handle second) {
  nanobind::object result = nanobind::steal(
      PyObject_CallFunctionObjArgs(function.ptr(), first.ptr(), second.ptr(), nullptr));
  if (!result.is_valid()) nanobind::raise_python_error();
  return result;
}

}  // namespace mxkern::bindings
