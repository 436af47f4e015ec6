// tests/support/gemm_operand.h: operands of a matrix product that own their memory, and their
// values in double precision.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "mxkern/gemm.h"
#include "mxkern/numerics/block_scale.h"
#include "tests/support/random_bits.h"

namespace mxkern::test {

// The values of a [batch, rows, k] tensor.
using Values = std::function<double(std::int64_t batch, std::int64_t row, std::int64_t k)>;

// Writes `count` bits of a code at bit `position`, low bits first.
inline void put_code(std::vector<std::uint8_t>& bytes, std::int64_t position, int bits,
                     std::uint32_t code) {
  for (int i = 0; i < bits; ++i) {
    const std::int64_t bit = position + i;
    const auto mask = static_cast<std::uint8_t>(1u << (bit % 8));
    std::uint8_t& byte = bytes[static_cast<std::size_t>(bit / 8)];
    byte = static_cast<std::uint8_t>((code >> i & 1u) != 0 ? byte | mask : byte & ~mask);
  }
}

inline std::uint32_t get_code(const std::vector<std::uint8_t>& bytes, std::int64_t position,
                              int bits) {
  std::uint32_t code = 0;
  for (int i = 0; i < bits; ++i) {
    const std::int64_t bit = position + i;
    code |= (bytes[static_cast<std::size_t>(bit / 8)] >> (bit % 8) & 1u) << i;
  }
  return code;
}

// A quantized operand. Whatever does not belong to an element, in the last byte of a row, in the
// codes up to a whole block and in swizzled scales, holds ones: nothing may depend on it.
struct QuantizedOperand {
  BlockScaled view;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;
  float tensor_scale = 1.0f;

  QuantizedOperand(Scheme scheme, Shape shape, ScaleLayout layout) {
    const auto sizes = BlockScaled::sizes(scheme, shape, layout);
    codes.assign(static_cast<std::size_t>(sizes.codes), 0xFF);
    scales.assign(static_cast<std::size_t>(sizes.scales), 0xFF);
    view.scheme = scheme;
    view.shape = shape;
    view.scale_layout = layout;
  }

  GemmOperand operand() { return quantized(); }
  BlockScaled quantized() {
    view.codes = codes.data();
    view.scales = scales.data();
    view.tensor_scale = facts_of(view.scheme).has_tensor_scale ? &tensor_scale : nullptr;
    return view;
  }

  std::int64_t code_position(std::int64_t batch, std::int64_t row, std::int64_t k) const {
    const std::int64_t row_bytes = code_row_bytes(view.scheme, view.shape.columns);
    return (batch * view.shape.rows + row) * row_bytes * 8 + k * facts_of(view.scheme).bits;
  }
  std::uint8_t& scale(std::int64_t batch, std::int64_t row, std::int64_t block) {
    const ScaleIndex index = view.scale_index();
    return scales[static_cast<std::size_t>(batch * index.size() + index.offset(row, block))];
  }
  void set_code(std::int64_t batch, std::int64_t row, std::int64_t k, std::uint32_t code) {
    put_code(codes, code_position(batch, row, k), facts_of(view.scheme).bits, code);
  }

  double value(std::int64_t batch, std::int64_t row, std::int64_t k) {
    return visit(view.scheme, [&]<class S>(S) {
      const auto code =
          static_cast<std::uint8_t>(get_code(codes, code_position(batch, row, k), S::Format::bits));
      const double element = decode<typename S::Format>(code);
      const double block = S::ScaleFormat::decode(scale(batch, row, k / S::block));
      return element * block * (S::has_tensor_scale ? static_cast<double>(tensor_scale) : 1.0);
    });
  }

  // For each block the scale that the scheme gives its largest magnitude, and the nearest codes.
  void quantize(const Values& values) {
    visit(view.scheme, [&]<class S>(S) {
      const Shape& shape = view.shape;
      TensorScale tensor{};
      if constexpr (S::has_tensor_scale) {
        float largest = 0.0f;
        for_each_row([&](std::int64_t batch, std::int64_t row) {
          for (std::int64_t k = 0; k < shape.columns; ++k) {
            largest = std::fmax(largest, std::fabs(static_cast<float>(values(batch, row, k))));
          }
        });
        tensor = TensorScale::from_amax(largest);
        tensor_scale = tensor.stored;
      }
      for_each_row([&](std::int64_t batch, std::int64_t row) {
        for (std::int64_t begin = 0; begin < shape.columns; begin += S::block) {
          const std::int64_t end = std::min<std::int64_t>(begin + S::block, shape.columns);
          float amax = 0.0f;
          for (std::int64_t k = begin; k < end; ++k) {
            amax = std::fmax(amax, std::fabs(static_cast<float>(values(batch, row, k))));
          }
          const BlockScale block = block_scale<S>(bits_of(amax), ScaleRule::rceil, tensor);
          scale(batch, row, begin / S::block) = block.byte;
          for (std::int64_t k = begin; k < end; ++k) {
            const float element = static_cast<float>(values(batch, row, k)) * block.multiplier;
            set_code(batch, row, k, encode<typename S::Format>(element));
          }
        }
      });
    });
  }

  // Every element and every block scale random, not only those that a quantizer produces.
  void fill_with_random_bytes(RandomBits& random) {
    const SchemeFacts facts = facts_of(view.scheme);
    for_each_row([&](std::int64_t batch, std::int64_t row) {
      for (std::int64_t k = 0; k < view.shape.columns; ++k) {
        set_code(batch, row, k, random.next());
        if (k % facts.block == 0) {
          scale(batch, row, k / facts.block) = static_cast<std::uint8_t>(random.next());
        }
      }
    });
  }

  template <class Visitor>
  void for_each_row(Visitor&& visitor) const {
    for (std::int64_t batch = 0; batch < view.shape.batch; ++batch) {
      for (std::int64_t row = 0; row < view.shape.rows; ++row) visitor(batch, row);
    }
  }
};

// A plain tensor whose rows and matrices lie further apart than they must; NaN lies between.
struct PlainTensor {
  Buffer view;
  std::vector<std::uint8_t> bytes;

  PlainTensor(DType dtype, Shape shape, std::int64_t row_gap = 0, std::int64_t batch_gap = 0) {
    const std::int64_t row_stride = shape.columns + row_gap;
    const std::int64_t batch_stride = shape.rows * row_stride + batch_gap;
    view.dtype = dtype;
    view.shape = shape;
    view.row_stride = row_stride;
    view.batch_stride = batch_stride;
    bytes.resize(static_cast<std::size_t>(shape.batch * batch_stride) * size_of(dtype));
    visit(dtype, [&]<class T>(TypeTag<T>) {
      for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
        reinterpret_cast<T*>(bytes.data())[i] =
            from_float<T>(std::numeric_limits<float>::quiet_NaN());
      }
    });
  }

  // Row r of all matrices lies ahead of row r + 1 of any. Without gaps.
  void interleave_matrices() {
    view.row_stride = view.shape.batch * view.shape.columns;
    view.batch_stride = view.shape.columns;
  }

  GemmOperand operand() { return buffer(); }
  Buffer buffer() {
    view.data = bytes.data();
    return view;
  }

  std::int64_t position(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    return batch * view.batch_stride + row * view.row_stride + column;
  }
  double value(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    return visit(view.dtype, [&]<class T>(TypeTag<T>) {
      return static_cast<double>(
          to_float(reinterpret_cast<const T*>(bytes.data())[position(batch, row, column)]));
    });
  }
  void set(std::int64_t batch, std::int64_t row, std::int64_t column, float value) {
    visit(view.dtype, [&]<class T>(TypeTag<T>) {
      reinterpret_cast<T*>(bytes.data())[position(batch, row, column)] = from_float<T>(value);
    });
  }
  void fill(const Values& values) {
    for (std::int64_t batch = 0; batch < view.shape.batch; ++batch) {
      for (std::int64_t row = 0; row < view.shape.rows; ++row) {
        for (std::int64_t k = 0; k < view.shape.columns; ++k) {
          set(batch, row, k, static_cast<float>(values(batch, row, k)));
        }
      }
    }
  }
};

// Normal values, the same for the same seed and place.
inline Values normal_values(std::uint64_t seed) {
  return [seed](std::int64_t batch, std::int64_t row, std::int64_t k) {
    RandomBits random(seed + static_cast<std::uint64_t>((batch * 4099 + row) * 65537 + k) * 7919);
    const double u = (static_cast<double>(random.next()) + 1.0) * 0x1p-32;
    const double angle = static_cast<double>(random.next()) * 0x1p-32 * 6.283185307179586;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(angle);
  };
}

}  // namespace mxkern::test
