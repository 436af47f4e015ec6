// tests/support/tensor.h: plain and quantized tensors that own their memory, with guarded edges.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "mxkern/core/buffer.h"
#include "mxkern/tensor/block_scaled.h"
#include "tests/support/random_bits.h"

namespace mxkern::test {

// Memory with a margin on both sides that must keep its bytes; outputs start with bytes that no
// test expects, so that what is left unwritten shows.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::int64_t size) : bytes_(static_cast<std::size_t>(size) + 2 * margin) {
    std::fill(bytes_.begin(), bytes_.end(), unwritten);
  }

  std::uint8_t* data() { return bytes_.data() + margin; }
  const std::uint8_t* data() const { return bytes_.data() + margin; }
  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()) - 2 * margin; }

  // Everything, margins included.
  std::span<std::uint8_t> whole() { return bytes_; }
  std::span<const std::uint8_t> whole() const { return bytes_; }

  // Where data() begins in it.
  static constexpr int data_offset() { return margin; }

  bool margins_are_intact() const {
    const auto is_unwritten = [](std::uint8_t byte) { return byte == unwritten; };
    return std::all_of(bytes_.begin(), bytes_.begin() + margin, is_unwritten) &&
           std::all_of(bytes_.end() - margin, bytes_.end(), is_unwritten);
  }

 private:
  static constexpr std::uint8_t unwritten = 0xCD;
  static constexpr int margin = 64;
  std::vector<std::uint8_t> bytes_;
};

// A plain tensor; `gap` elements lie between rows, `gap` rows between matrices.
class Tensor {
 public:
  Tensor(DType dtype, Shape shape, std::int64_t gap = 0)
      : dtype_(dtype),
        shape_(shape),
        row_stride_(shape.columns + gap),
        batch_stride_((shape.rows + gap) * row_stride_),
        bytes_(shape.batch * batch_stride_ * static_cast<std::int64_t>(size_of(dtype))) {}

  Buffer buffer() { return {bytes_.data(), dtype_, shape_, row_stride_, batch_stride_, Device{}}; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const GuardedBytes& bytes() const { return bytes_; }
  GuardedBytes& bytes() { return bytes_; }

  float get(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    return visit(dtype_, [&](auto tag) {
      typename decltype(tag)::type value;
      std::memcpy(&value, bytes_.data() + offset(batch, row, column), sizeof(value));
      return to_float(value);
    });
  }

  void set(std::int64_t batch, std::int64_t row, std::int64_t column, float number) {
    visit(dtype_, [&](auto tag) {
      const auto value = from_float<typename decltype(tag)::type>(number);
      std::memcpy(bytes_.data() + offset(batch, row, column), &value, sizeof(value));
    });
  }

  // The bits of an element as the tensor's type has them.
  std::uint32_t bits(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes_.data() + offset(batch, row, column), size_of(dtype_));
    return bits;
  }

  // Visits all coordinates in row-major order.
  template <class Visitor>
  void for_each(Visitor&& visitor) const {
    for (std::int64_t b = 0; b < shape_.batch; ++b) {
      for (std::int64_t r = 0; r < shape_.rows; ++r) {
        for (std::int64_t c = 0; c < shape_.columns; ++c) visitor(b, r, c);
      }
    }
  }

 private:
  std::size_t offset(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(batch * batch_stride_ + row * row_stride_ + column) *
           size_of(dtype_);
  }

  DType dtype_;
  Shape shape_;
  std::int64_t row_stride_;
  std::int64_t batch_stride_;
  GuardedBytes bytes_;
};

// A quantized tensor.
struct Quantized {
  BlockScaled view;
  GuardedBytes codes;
  GuardedBytes scales;
  float tensor_scale = -1.0f;

  Quantized(Scheme scheme, const Shape& shape, ScaleLayout layout)
      : codes(BlockScaled::sizes(scheme, shape, layout).codes),
        scales(BlockScaled::sizes(scheme, shape, layout).scales) {
    view.scheme = scheme;
    view.shape = shape;
    view.scale_layout = layout;
  }

  // The view as an output or input. Moving this object moves the tensor scale.
  const BlockScaled& out() {
    view.codes = codes.data();
    view.scales = scales.data();
    view.tensor_scale = facts_of(view.scheme).has_tensor_scale ? &tensor_scale : nullptr;
    return view;
  }
};

// Values of every kind that rows of real tensors and hostile ones have: magnitudes that wander from
// block to block, runs of zeros of either sign, subnormals, ties, huge values, rare Inf and NaN.
inline void fill_mixed(Tensor& tensor, std::uint64_t seed, bool with_specials = true) {
  RandomBits random(seed);
  int run = 0;
  int exponent = 0;
  int kind = 0;
  const int limit = tensor.dtype() == DType::float16 ? 14 : 120;
  tensor.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
    if (run-- == 0) {
      run = random.between(10, 70);
      exponent = random.between(0, 3) == 0 ? random.between(-limit, limit) : random.between(-8, 8);
      kind = random.between(0, 11);
    }
    std::uint32_t bits = random.float_bits(std::max(exponent - 6, -limit), exponent);
    if (kind == 0) bits &= float32::sign_mask;
    if (kind == 1 && random.between(0, 3) == 0) bits &= float32::sign_mask | 0x007FFFFFu;
    const bool special = with_specials && kind == 2 && random.between(0, 99) == 0;
    if (special) bits = bits % 2 == 0 ? 0xFF800000u : bits % 3 == 0 ? 0x7F800000u : 0xFFC12345u;
    tensor.set(b, r, c, float_of(bits));
  });
}

// Blocks of values of many scales, whose largest magnitude lies next to the dtype's largest number:
// in float32 and bfloat16 within as many last places as `even` looks at.
inline void fill_near_largest(Tensor& tensor, std::uint64_t seed) {
  RandomBits random(seed);
  const bool is_half = tensor.dtype() == DType::float16;
  const std::uint32_t largest = is_half                             ? bits_of(65504.0f)
                                : tensor.dtype() == DType::bfloat16 ? 0x7F7F0000u
                                                                    : float32::largest_bits;
  const std::uint32_t place = tensor.dtype() == DType::float32 ? 1u : 0x10000u;
  tensor.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
    std::uint32_t bits = random.float_bits(is_half ? 0 : 100, is_half ? 14 : 126);
    if ((r + c) % 16 == 0) {
      const std::uint32_t below = (random.next() >> random.between(9, 31)) / place * place;
      bits = (bits & float32::sign_mask) | (largest - below);
    }
    tensor.set(b, r, c, float_of(bits));
  });
}

// Squares of 16 x 16 of which 4over6, with an amax of 2688, takes one scale or the other, depending
// on the order in which a square's errors are added up: five values each, anywhere.
inline void fill_near_ties(Tensor& tensor, std::uint64_t seed) {
  constexpr float values[] = {6.0f, 2.25f, 3.0000545f, 3.0000545f, 2.0f};
  constexpr int extent = 16;
  const Shape& shape = tensor.shape();
  tensor.for_each(
      [&](std::int64_t b, std::int64_t r, std::int64_t c) { tensor.set(b, r, c, 0.0f); });
  RandomBits random(seed);
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t r = 0; r < shape.rows; r += extent) {
      for (std::int64_t c = 0; c < shape.columns; c += extent) {
        for (const float value : values) {
          const std::int64_t row = r + random.between(0, extent - 1);
          const std::int64_t column = c + random.between(0, extent - 1);
          if (row < shape.rows && column < shape.columns) tensor.set(b, row, column, value);
        }
      }
    }
  }
}

}  // namespace mxkern::test
