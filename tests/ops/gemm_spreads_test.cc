// tests/ops/gemm_spreads_test.cc: products of rows whose scales spread by any number of octaves,
// with blocks of zeros among them.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/gemm_reference.h"

namespace mxkern {
namespace {

using namespace test;

// Scales of blocks that are not zeros lie within `octaves` of each other; zeros have the smallest
// one there is, as `quantize` gives it, or any.
void fill(QuantizedOperand& operand, int octaves, int zeros_in_ten, RandomBits& random) {
  const SchemeFacts facts = facts_of(operand.view.scheme);
  const bool has_negative_zero = operand.view.scheme != Scheme::mxint8;
  const std::uint32_t sign = has_negative_zero ? 1u << (facts.bits - 1) : 0u;
  const int lowest = random.between(0, 254 - octaves);
  operand.quantize(normal_values(random.next()));
  operand.for_each_row([&](std::int64_t batch, std::int64_t row) {
    const std::int64_t k = operand.view.shape.columns;
    for (std::int64_t block = 0; block * facts.block < k; ++block) {
      operand.scale(batch, row, block) =
          static_cast<std::uint8_t>(lowest + random.between(0, octaves));
      if (random.between(1, 10) > zeros_in_ten) continue;
      const std::uint32_t zero = random.between(0, 3) == 0 ? sign : 0u;
      for (std::int64_t i = block * facts.block; i < std::min(k, (block + 1) * facts.block); ++i) {
        operand.set_code(batch, row, i, zero);
      }
      if (random.between(0, 3) != 0) operand.scale(batch, row, block) = 0;
    }
  });
}

TEST(GemmSpreadsTest, ProductsOfAnySpreadAreExact) {
  RandomBits random(51);
  const Scheme schemes[] = {Scheme::mxfp8_e4m3, Scheme::mxfp8_e5m2, Scheme::mxfp6_e3m2,
                            Scheme::mxfp6_e2m3, Scheme::mxfp4,      Scheme::mxint8};
  const int octaves[] = {0, 30, 49, 52, 75, 110, 180, 254};
  for (int i = 0; i < 120; ++i) {
    const auto any_scheme = [&] { return schemes[random.between(0, 5)]; };
    const auto any_spread = [&] { return octaves[random.between(0, 7)]; };
    const std::int64_t k = random.between(1, 12) * 32 - random.between(0, 1) * 13;
    const auto layout = i % 2 == 0 ? ScaleLayout::row_major : ScaleLayout::swizzled;
    QuantizedOperand a(any_scheme(), {1, random.between(1, 20), k}, layout);
    QuantizedOperand b(any_scheme(), {1, random.between(1, 40), k}, layout);
    fill(a, any_spread(), 3 * random.between(0, 3), random);
    fill(b, any_spread(), 3 * random.between(0, 3), random);
    PlainTensor out(DType::float32, {1, a.view.shape.rows, b.view.shape.rows});
    const Reference want = multiply(a, b, out);
    for (const GemmUnit unit : available_units()) {
      run_unit(unit, a.operand(), b.quantized(), out.buffer());
      ASSERT_TRUE(agrees(out, want, describe_case(unit, a.operand(), b.quantized()))) << i;
    }
  }
}

}  // namespace
}  // namespace mxkern
