// tests/support/expect_reference_values.h: the CPU's dequantization against a plain loop.
#pragma once

#include <gtest/gtest.h>

#include "cpu/backend.h"
#include "mxkern/core/error.h"
#include "tests/support/kernel_tables.h"
#include "tests/support/reference_dequantize.h"
#include "tests/support/show.h"

namespace mxkern::test {

// Any bytes are codes and scales.
inline Quantized random_bytes(Scheme scheme, const Shape& shape, ScaleLayout layout,
                              float tensor_scale, std::uint64_t seed) {
  RandomBits random(seed);
  Quantized q(scheme, shape, layout);
  for (std::int64_t i = 0; i < q.codes.size(); ++i)
    q.codes.data()[i] = static_cast<std::uint8_t>(random.next());
  for (std::int64_t i = 0; i < q.scales.size(); ++i)
    q.scales.data()[i] = static_cast<std::uint8_t>(random.next());
  q.tensor_scale = tensor_scale;
  return q;
}

inline void expect_reference_values(Quantized& q, DType dtype, std::int64_t gap = 0) {
  const Shape& shape = q.view.shape;
  const Tensor wanted = reference_dequantize(q, dtype);
  for (const cpu::InstructionSet set : available_instruction_sets()) {
    Tensor out(dtype, shape, gap);
    cpu::dequantize(q.out(), out.buffer(), cpu::kernels_for(set));
    const auto where = [&] {
      return concatenate(cpu::name_of(set), ", ", name_of(q.view.scheme), " to ", name_of(dtype),
                         ", ", name_of(q.view.scale_layout), " [", shape.batch, ", ", shape.rows,
                         ", ", shape.columns, "]");
    };
    out.for_each([&](auto b, auto r, auto c) {
      ASSERT_EQ(out.bits(b, r, c), wanted.bits(b, r, c))
          << where() << " at [" << b << ", " << r << ", " << c << "]: " << show(out.get(b, r, c))
          << ", wanted " << show(wanted.get(b, r, c));
    });
    ASSERT_TRUE(out.bytes().margins_are_intact()) << where();
  }
}

}  // namespace mxkern::test
