// bindings/readers/array.h: an array of any framework as a call sees it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>

#include "casters.h"
#include "extents.h"

namespace mxkern::bindings {

// The element types that operations read and write, in the order of `DTYPES` in
// mxkern/arrays/adapter.py. The plain ones come first, in the order of all_dtypes.
enum class Element : int {
  other = -1,
  float32,
  float16,
  bfloat16,
  float8_e4m3fn,
  float8_e5m2,
  float8_e8m0fnu,
  int8,
  uint8,
  int32,
  uint16,
  float64
};

constexpr bool is_plain(Element element) {
  return element >= Element::float32 && element <= Element::bfloat16;
}

constexpr std::int64_t size_of(Element element) {
  if (element == Element::float64) return 8;
  if (element == Element::float32 || element == Element::int32) return 4;
  return is_plain(element) || element == Element::uint16 ? 2 : 1;
}

// Distances in elements between rows that are dense and do not overlap, and between matrices.
struct RowStrides {
  std::int64_t row = 0, batch = 0;
};

// The name of an argument, or of a part of one, which is put together when somebody wants to read
// it. The parts of an argument without a name are arguments themselves.
struct Name {
  const char* argument;
  const char* field = nullptr;

  Name(const char* argument, const char* field = nullptr) : argument(argument), field(field) {}
  Name of(const char* part) const { return {argument, part}; }

  std::string text() const {
    if (field == nullptr) return argument;
    return *argument == '\0' ? field : std::string(argument) + "." + field;
  }
};

struct Array {
  nanobind::object object;  // holds the memory: what was given, or what it was converted to
  void* data = nullptr;
  Element element = Element::other;
  Device device;
  bool is_writable = true;
  bool is_dense = true;
  Extents extents;
  Extents strides;  // in elements, where it is not dense; of no dimensions where nobody knows

  // Nothing comes of an array whose rows are not dense, overlap or lie at unequal distances.
  std::optional<RowStrides> rows() const {
    const int dimensions = extents.dimensions;
    const std::int64_t columns = extents.items[dimensions - 1];
    const std::int64_t count = dimensions > 1 ? extents.items[dimensions - 2] : 1;
    RowStrides found{columns, count * columns};
    if (is_dense) return found;
    if (strides.dimensions != dimensions) return std::nullopt;
    if (columns != 1 && strides.items[dimensions - 1] != 1) return std::nullopt;
    std::int64_t least = columns;
    if (count != 1) {
      found.row = strides.items[dimensions - 2];
      if (found.row < least) return std::nullopt;
      least = found.row * count;
    }
    found.batch = least;
    std::int64_t expected = -1;
    for (int i = dimensions - 3; i >= 0; --i) {
      if (extents.items[i] == 1) continue;
      const std::int64_t step = strides.items[i];
      if (expected < 0) {
        if (step < least) return std::nullopt;
        found.batch = step;
      } else if (step != expected) {
        return std::nullopt;
      }
      expected = step * extents.items[i];
    }
    return found;
  }

  // The transpose, where it is the transpose that has its rows in memory.
  bool turn() {
    const int last = extents.dimensions - 1;
    if (is_dense || last < 1 || strides.dimensions != extents.dimensions ||
        strides.items[last] == 1) {
      return false;
    }
    const auto swap = [&] {
      std::swap(extents.items[last], extents.items[last - 1]);
      std::swap(strides.items[last], strides.items[last - 1]);
    };
    swap();
    if (rows()) return true;
    swap();
    return false;
  }

  Buffer buffer(const RowStrides& distances) const {
    Buffer buffer =
        Buffer::dense(data, all_dtypes[static_cast<int>(element)], extents.shape(), device);
    buffer.row_stride = distances.row;
    buffer.batch_stride = distances.batch;
    return buffer;
  }

  // From its first byte to behind its last one.
  Span span() const {
    std::int64_t before = 0, elements = 1;
    for (int i = 0; i < extents.dimensions; ++i) {
      if (extents.items[i] == 0) return {nullptr, 0};
      if (is_dense) {
        elements *= extents.items[i];
      } else if (strides.dimensions == extents.dimensions) {
        const std::int64_t reach = (extents.items[i] - 1) * strides.items[i];
        (reach < 0 ? before : elements) += reach;
      }
    }
    const std::int64_t size = size_of(element);
    return {static_cast<const char*>(data) + before * size, (elements - before) * size};
  }
};

}  // namespace mxkern::bindings
