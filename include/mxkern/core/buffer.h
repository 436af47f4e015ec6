// mxkern/core/buffer.h: a view of a batch of matrices that somebody else owns.
#pragma once

#include <cstdint>

#include "mxkern/core/device.h"
#include "mxkern/core/dtype.h"

namespace mxkern {

// batch x rows x columns. Leading dimensions of a tensor collapse into batch; a vector has one row.
struct Shape {
  std::int64_t batch = 1;
  std::int64_t rows = 1;
  std::int64_t columns = 0;

  constexpr std::int64_t size() const { return batch * rows * columns; }
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

  // A view of densely stored memory.
  static constexpr Buffer dense(void* data, DType dtype, Shape shape, Device device = {}) {
    return {data, dtype, shape, shape.columns, shape.rows * shape.columns, device};
  }

  // The same for memory that is only read: operations never write through their inputs.
  static Buffer dense(const void* data, DType dtype, Shape shape, Device device = {}) {
    return dense(const_cast<void*>(data), dtype, shape, device);
  }
};

// Rows of neighbouring matrices follow one another as rows of one matrix do.
inline bool is_one_matrix(const Buffer& x) {
  return x.shape.batch == 1 || x.batch_stride == x.shape.rows * x.row_stride;
}

// Rows start on multiples of 16 bytes.
inline bool starts_on_16(const Buffer& x) {
  const auto size = static_cast<std::int64_t>(size_of(x.dtype));
  const bool rows = x.shape.rows == 1 || x.row_stride * size % 16 == 0;
  const bool batches = x.shape.batch == 1 || x.batch_stride * size % 16 == 0;
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && rows && batches;
}

}  // namespace mxkern
