// tests/phantom/phantoms_test.cc: schemes that no code path was written for, on every instruction
// set against the numerics, byte for byte; products against double precision.
#include <gtest/gtest.h>

#include <cstdint>

#include "tests/support/expect_reference_bytes.h"
#include "tests/support/expect_reference_values.h"
#include "tests/support/gemm_reference.h"

namespace mxkern {
namespace {

using namespace test;

TEST(Phantoms, EveryOptionGivesTheBytesOfTheReference) {
  const Shape shapes[] = {{1, 40, 70}, {2, 17, 65}, {1, 130, 33}, {1, 3, 260}, {1, 129, 448}};
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for_each_option(scheme, [&](const QuantizeOptions& options) {
        Tensor x(dtype, shapes[turn++ % std::size(shapes)]);
        turn % 4 == 0 ? fill_near_largest(x, static_cast<std::uint64_t>(turn))
                      : fill_mixed(x, static_cast<std::uint64_t>(turn));
        for (const ScaleLayout layout : all_scale_layouts) {
          expect_reference_bytes(x, {scheme, layout, options, options});
        }
      });
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Phantoms, TransformsGiveTheBytesOfTheReference) {
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for (const int size : hadamard_sizes) {
        QuantizeOptions options;
        options.hadamard.size = size;
        options.block_shape = all_block_shapes[size / 32 % 2];
        Tensor x(dtype, {2, 256, 128 + size});
        fill_mixed(x, static_cast<std::uint64_t>(size));
        expect_reference_bytes(x, {scheme, ScaleLayout::swizzled, options, options});
        options.rounding = Rounding::stochastic;
        expect_reference_bytes(x, {scheme, ScaleLayout::row_major, options, {}});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Enough elements for several threads and every size of tile.
TEST(Phantoms, LargeTensorsGiveTheBytesOfTheReference) {
  for (const Scheme scheme : all_schemes) {
    for (const Shape& shape : {Shape{1, 300, 1100}, Shape{1, 2, 140000}, Shape{1, 90000, 3}}) {
      for (const ScaleLayout layout : all_scale_layouts) {
        Tensor x(DType::bfloat16, shape);
        fill_mixed(x, 17);
        expect_reference_bytes(x, {scheme, layout, {}, {}});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Phantoms, AnyBytesGiveTheValuesOfTheReference) {
  std::uint64_t seed = 0;
  for (const Scheme scheme : all_schemes) {
    const int block = facts_of(scheme).block;
    for (const DType dtype : all_dtypes) {
      for (const int columns : {1, block - 1, block, block + 1, 63, 129, 2500}) {
        for (const ScaleLayout layout : all_scale_layouts) {
          Quantized q = random_bytes(scheme, {2, 5, columns}, layout, 1.0f, ++seed);
          expect_reference_values(q, dtype);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Phantoms, FakeQuantizeGivesTheValuesOfTheReference) {
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for_each_option(scheme, [&](const QuantizeOptions& options) {
        Tensor x(dtype, turn % 2 == 0 ? Shape{2, 37, 83} : Shape{1, 70, 700});
        fill_mixed(x, static_cast<std::uint64_t>(++turn));
        const Quantized q = reference_quantize(x, false, scheme, ScaleLayout::row_major, options);
        const Tensor wanted = reference_dequantize(q, dtype);
        for (const cpu::InstructionSet set : available_instruction_sets()) {
          Tensor y(dtype, x.shape());
          cpu::fake_quantize(x.buffer(), scheme, y.buffer(), options, cpu::kernels_for(set));
          y.for_each([&](auto b, auto r, auto c) {
            ASSERT_EQ(y.bits(b, r, c), wanted.bits(b, r, c))
                << cpu::name_of(set) << ", " << name_of(scheme) << ", " << describe(x, options)
                << " at [" << b << ", " << r << ", " << c << "]: " << show(y.get(b, r, c))
                << ", wanted " << show(wanted.get(b, r, c));
          });
        }
      });
      if (HasFatalFailure()) return;
    }
  }
}

QuantizedOperand make_operand(Scheme scheme, Shape shape, ScaleLayout layout, std::uint64_t seed) {
  QuantizedOperand operand(scheme, shape, layout);
  operand.quantize(normal_values(seed));
  return operand;
}

// Sums of a chunk, of a panel and of several, with scales in either layout.
TEST(Phantoms, ProductsAreWithinTheBound) {
  int turn = 0;
  for (const Scheme left : all_schemes) {
    for (const Scheme right : all_schemes) {
      for (const std::int64_t k : {31, 161, 1216, 2500}) {
        ++turn;
        const ScaleLayout layout = all_scale_layouts[turn % 2];
        QuantizedOperand a = make_operand(left, {1, 19, k}, layout, 1);
        QuantizedOperand b = make_operand(right, {1, 35, k}, all_scale_layouts[turn / 2 % 2], 2);
        PlainTensor out(DType::float32, {1, 19, 35});
        for (const GemmUnit unit : available_units()) {
          run_unit(unit, a.operand(), b.quantized(), out.buffer());
          ASSERT_TRUE(
              agrees(out, multiply(a, b, out), describe_case(unit, a.operand(), b.quantized())));
        }
      }
    }
  }
}

}  // namespace
}  // namespace mxkern
