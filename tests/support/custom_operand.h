// tests/support/custom_operand.h: an operand of a matrix product by a scheme of the user's own.
#pragma once

#include "mxkern/custom.h"
#include "tests/support/any_schemes.h"
#include "tests/support/gemm_operand.h"

namespace mxkern::test {

// Its values are those that dequantize gives in float32, which holds them all.
struct CustomOperand {
  AnyMemory memory;
  PlainTensor decoded;
  AnyBlockScaled& view;

  CustomOperand(const AnyScheme& scheme, const Shape& shape, const Values& values,
                ScaleLayout layout = ScaleLayout::row_major)
      : memory(scheme, shape, layout), decoded(DType::float32, shape), view(memory.view) {
    PlainTensor x(DType::float32, shape);
    x.fill(values);
    quantize(AnyBuffer(x.buffer()), view);
    dequantize(view, AnyBuffer(decoded.buffer()));
  }

  double value(std::int64_t batch, std::int64_t row, std::int64_t k) const {
    return decoded.value(batch, row, k);
  }
};

}  // namespace mxkern::test
