// tests/support/compare_quantized.h: byte equality of quantized tensors, with coordinates where
// not.
#pragma once

#include <gtest/gtest.h>

#include "mxkern/tensor/packing.h"
#include "tests/support/show.h"
#include "tests/support/tensor.h"

namespace mxkern::test {

inline ::testing::AssertionResult same_scales(const Quantized& got, const Quantized& wanted) {
  const ScaleIndex index = wanted.view.scale_index();
  for (std::int64_t i = 0; i < wanted.scales.size(); ++i) {
    const std::uint8_t a = got.scales.data()[i];
    const std::uint8_t b = wanted.scales.data()[i];
    if (a == b) continue;
    const ScaleCoordinate at = index.coordinate(i % index.size());
    return ::testing::AssertionFailure()
           << "scale of batch " << i / index.size() << ", row " << at.row << ", block " << at.block
           << " is " << show_code(a) << ", wanted " << show_code(b);
  }
  return ::testing::AssertionSuccess();
}

inline ::testing::AssertionResult same_codes(const Quantized& got, const Quantized& wanted) {
  const Shape& shape = wanted.view.shape;
  const std::int64_t row_bytes = code_row_bytes(wanted.view.scheme, shape.columns);
  const int bits = facts_of(wanted.view.scheme).bits;
  for (std::int64_t i = 0; i < wanted.codes.size(); ++i) {
    const std::uint8_t a = got.codes.data()[i];
    const std::uint8_t b = wanted.codes.data()[i];
    if (a == b) continue;
    const std::int64_t line = i / row_bytes;
    return ::testing::AssertionFailure()
           << "code byte of batch " << line / shape.rows << ", row " << line % shape.rows
           << ", near column " << i % row_bytes * 8 / bits << " is " << show_code(a) << ", wanted "
           << show_code(b);
  }
  return ::testing::AssertionSuccess();
}

inline ::testing::AssertionResult same_bytes(const Quantized& got, const Quantized& wanted) {
  const auto fail = [&](const ::testing::AssertionResult& why) {
    const Shape& shape = wanted.view.shape;
    return ::testing::AssertionFailure()
           << name_of(wanted.view.scheme) << " [" << shape.batch << ", " << shape.rows << ", "
           << shape.columns << "] " << name_of(wanted.view.scale_layout) << ": " << why.message();
  };
  if (bits_of(got.tensor_scale) != bits_of(wanted.tensor_scale)) {
    return fail(::testing::AssertionFailure()
                << "tensor scale is " << show(got.tensor_scale) << " ("
                << show_bits(bits_of(got.tensor_scale)) << "), wanted " << show(wanted.tensor_scale)
                << " (" << show_bits(bits_of(wanted.tensor_scale)) << ")");
  }
  if (const auto scales = same_scales(got, wanted); !scales) return fail(scales);
  if (const auto codes = same_codes(got, wanted); !codes) return fail(codes);
  if (!got.codes.margins_are_intact()) {
    return fail(::testing::AssertionFailure() << "bytes outside the codes were written");
  }
  if (!got.scales.margins_are_intact()) {
    return fail(::testing::AssertionFailure() << "bytes outside the scales were written");
  }
  return ::testing::AssertionSuccess();
}

}  // namespace mxkern::test
