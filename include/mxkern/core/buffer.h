// mxkern/core/buffer.h: a view of a batch of matrices that somebody else owns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mxkern/core/device.h"
#include "mxkern/core/dtype.h"
#include "mxkern/core/math.h"

namespace mxkern {

// batch x rows x columns. Leading dimensions of a tensor collapse into batch; a vector has one row.
struct Shape {
  std::int64_t batch = 1;
  std::int64_t rows = 1;
  std::int64_t columns = 0;

  // Of a shape that is not countable, some number.
  constexpr std::int64_t size() const {
    return wrapped_product(wrapped_product(batch, rows), columns);
  }

  // No extent is negative, and with rows and columns padded to 128 and 0 counted as 1 there are
  // fewer than 2^60 elements. So sizes and strides in bytes fit 64 bits.
  constexpr bool is_countable() const {
    constexpr std::int64_t limit = (std::int64_t{1} << 60) - 1;
    if (batch < 0 || rows < 0 || columns < 0 || rows > limit || columns > limit) return false;
    const auto padded = [](std::int64_t n) { return round_up(n > 0 ? n : 1, 128); };
    std::int64_t count = 0;
    return !__builtin_mul_overflow(padded(rows), padded(columns), &count) &&
           !__builtin_mul_overflow(count, batch > 0 ? batch : 1, &count) && count <= limit;
  }

  constexpr Shape transposed() const { return {batch, columns, rows}; }
  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

// Elements of a row are adjacent; rows and matrices may lie further apart. Strides count elements.
struct Buffer {
  void* data = nullptr;
  DType dtype = DType::float32;
  Shape shape;
  std::int64_t row_stride = 0;
  std::int64_t batch_stride = 0;
  Device device;
  bool is_read_only = false;  // then it is refused as an output

  // A view of densely stored memory.
  static constexpr Buffer dense(void* data, DType dtype, Shape shape, Device device = {}) {
    const std::int64_t matrix = wrapped_product(shape.rows, shape.columns);
    return {data, dtype, shape, shape.columns, matrix, device};
  }

  // The same for memory that is only read.
  static Buffer dense(const void* data, DType dtype, Shape shape, Device device = {}) {
    Buffer view = dense(const_cast<void*>(data), dtype, shape, device);
    view.is_read_only = true;
    return view;
  }

  // Without memory, for what only asks for shapes.
  static constexpr Buffer dense(std::nullptr_t, DType dtype, Shape shape, Device device = {}) {
    return dense(static_cast<void*>(nullptr), dtype, shape, device);
  }
};

// Each takes a Buffer, or what has the same shape and strides.
// No gaps between rows or matrices.
template <class View>
constexpr bool is_dense(const View& x) {
  return (x.shape.rows <= 1 || x.row_stride == x.shape.columns) &&
         (x.shape.batch <= 1 || x.batch_stride == x.shape.rows * x.shape.columns);
}

// Rows of neighbouring matrices follow one another as rows of one matrix do.
template <class View>
constexpr bool is_one_matrix(const View& x) {
  return x.shape.batch == 1 || x.batch_stride == x.shape.rows * x.row_stride;
}

inline bool starts_on(const void* address, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

// Whether rows of so many bytes, one after the other, do.
inline bool rows_start_on(const void* address, std::int64_t row_bytes, int bytes) {
  return starts_on(address, static_cast<std::uintptr_t>(bytes)) && row_bytes % bytes == 0;
}

// Rows start as many bytes off a multiple of 16 as the first one.
template <class View>
constexpr bool strides_are_on_16(const View& x) {
  const auto size = static_cast<std::int64_t>(size_of(x.dtype));
  const bool rows = x.shape.rows == 1 || x.row_stride * size % 16 == 0;
  const bool batches = x.shape.batch == 1 || x.batch_stride * size % 16 == 0;
  return rows && batches;
}

// Rows start on multiples of 16 bytes.
inline bool starts_on_16(const Buffer& x) { return starts_on(x.data, 16) && strides_are_on_16(x); }

}  // namespace mxkern
