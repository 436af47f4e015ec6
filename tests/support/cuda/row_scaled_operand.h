// tests/support/cuda/row_scaled_operand.h: a matrix as tensor cores take it, on the host and on the
// device.
#pragma once

#include <memory>
#include <vector>

#include "cuda/operands/row_scaled.h"
#include "mxkern/core/math.h"
#include "mxkern/numerics/codec.h"
#include "mxkern/numerics/format.h"
#include "tests/support/cuda/memory.h"

namespace mxkern::test {

// Random elements around 1. All bytes that are no elements are NaN: between parts, rows and
// matrices.
class RowScaledOperand {
 public:
  RowScaledOperand(cuda::CoreElement element, Shape shape, std::uint64_t seed, int parts = 1)
      : element_(element), shape_(shape), parts_(parts), random_(seed) {
    const int size = cuda::bytes_of(element);
    part_bytes_ = round_up(shape.columns * size, 16) + 16;
    row_bytes_ = part_bytes_ * parts;
    batch_bytes_ = row_bytes_ * shape.rows + 16;
    bytes_.assign(static_cast<std::size_t>(batch_bytes_ * shape.batch) + 16, 0xFF);
    exponents_.assign(static_cast<std::size_t>(shape.batch * shape.rows), 0);
    spreads_.assign(exponents_.size(), 0);
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      for (std::int64_t r = 0; r < shape.rows; ++r) {
        for (int part = 0; part < parts; ++part) {
          for (std::int64_t c = 0; c < shape.columns; ++c) set(b, r, c, part, random_element());
        }
      }
    }
  }

  void set(std::int64_t batch, std::int64_t row, std::int64_t column, int part,
           std::uint16_t code) {
    std::uint8_t* at = address(batch, row, column, part);
    at[0] = static_cast<std::uint8_t>(code);
    if (element_ == cuda::CoreElement::bfloat16) at[1] = static_cast<std::uint8_t>(code >> 8);
  }

  // Without the row's exponent.
  double get(std::int64_t batch, std::int64_t row, std::int64_t column, int part) {
    const std::uint8_t* at = address(batch, row, column, part);
    switch (element_) {
      case cuda::CoreElement::e4m3: return static_cast<double>(decode<E4M3>(at[0]));
      case cuda::CoreElement::e5m2: return static_cast<double>(decode<E5M2>(at[0]));
      case cuda::CoreElement::bfloat16: break;
    }
    const bfloat16 value{static_cast<std::uint16_t>(at[0] | at[1] << 8)};
    return static_cast<double>(to_float(value));
  }

  std::uint16_t nan() const { return element_ == cuda::CoreElement::bfloat16 ? 0x7FC0 : 0x7F; }

  const Shape& shape() const { return shape_; }
  int parts() const { return parts_; }
  cuda::CoreElement element() const { return element_; }
  std::vector<std::int32_t>& exponents() { return exponents_; }
  std::vector<std::uint8_t>& spreads() { return spreads_; }

  void random_exponents(int low, int high) {
    for (std::int32_t& exponent : exponents_) exponent = random_.between(low, high);
  }

  int exponent(std::int64_t batch, std::int64_t row) const {
    return exponents_[static_cast<std::size_t>(batch * shape_.rows + row)];
  }

  // Copies to the device; the view lives as long as this object.
  cuda::RowScaled on_device(bool with_exponents = true, int spreads_shift = 0) {
    memory_ = upload(bytes_.data(), bytes_.size(), 0);
    exponent_memory_ = upload(exponents_.data(), exponents_.size() * 4, 0);
    spread_memory_ = upload(spreads_.data(), spreads_.size(), spreads_shift);
    cuda::RowScaled view{};
    view.element = element_;
    view.data = memory_->data();
    view.batch = shape_.batch;
    view.rows = shape_.rows;
    view.columns = shape_.columns;
    view.row_bytes = row_bytes_;
    view.batch_bytes = batch_bytes_;
    if (with_exponents) {
      view.exponents = reinterpret_cast<const std::int32_t*>(exponent_memory_->data());
    }
    view.spreads = spread_memory_->data();
    view.parts = parts_;
    view.part_bytes = part_bytes_;
    return view;
  }

 private:
  using Memory = std::unique_ptr<DeviceBytes>;

  static Memory upload(const void* from, std::size_t size, int shift) {
    auto memory = std::make_unique<DeviceBytes>(size, shift);
    copy_to_device(memory->data(), from, size);
    return memory;
  }

  std::uint8_t* address(std::int64_t batch, std::int64_t row, std::int64_t column, int part) {
    return bytes_.data() + batch * batch_bytes_ + row * row_bytes_ + part * part_bytes_ +
           column * cuda::bytes_of(element_);
  }

  std::uint16_t random_element() {
    const float value = float_of(random_.float_bits(-4, 2));
    switch (element_) {
      case cuda::CoreElement::e4m3: return encode<E4M3>(value);
      case cuda::CoreElement::e5m2: return encode<E5M2>(value);
      case cuda::CoreElement::bfloat16: break;
    }
    return from_float<bfloat16>(value).bits;
  }

  cuda::CoreElement element_;
  Shape shape_;
  int parts_;
  RandomBits random_;
  std::int64_t part_bytes_, row_bytes_, batch_bytes_;
  std::vector<std::uint8_t> bytes_;
  std::vector<std::int32_t> exponents_;
  std::vector<std::uint8_t> spreads_;
  Memory memory_, exponent_memory_, spread_memory_;
};

}  // namespace mxkern::test
