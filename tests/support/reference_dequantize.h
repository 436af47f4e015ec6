// tests/support/reference_dequantize.h: dequantize as a plain loop over the public numerics.
#pragma once

#include "mxkern/numerics/block_scale.h"
#include "mxkern/tensor/packing.h"
#include "tests/support/tensor.h"

namespace mxkern::test {

template <class S>
float reference_value(const Quantized& q, std::int64_t batch, std::int64_t row,
                      std::int64_t column) {
  const ScaleIndex index = q.view.scale_index();
  const std::int64_t row_bytes = code_row_bytes<S>(q.view.shape.columns);
  constexpr int bits = S::Format::bits;
  constexpr int group = PackGroup<bits>::codes;
  const std::uint8_t* bytes = q.codes.data() + (batch * q.view.shape.rows + row) * row_bytes +
                              column / group * PackGroup<bits>::bytes;
  std::uint8_t codes[group];
  unpack_group<bits>(bytes, codes);
  const std::uint8_t scale =
      q.scales.data()[batch * index.size() + index.offset(row, column / S::block)];
  const float value = element_value<S>(decode<typename S::Format>(codes[column % group]),
                                       S::ScaleFormat::decode(scale), q.tensor_scale);
  return value != value ? float_of(float32::nan_bits) : value;
}

inline Tensor reference_dequantize(const Quantized& q, DType dtype) {
  Tensor out(dtype, q.view.shape);
  visit(q.view.scheme, [&](auto type) {
    out.for_each([&](auto b, auto r, auto c) {
      out.set(b, r, c, reference_value<decltype(type)>(q, b, r, c));
    });
  });
  return out;
}

}  // namespace mxkern::test
