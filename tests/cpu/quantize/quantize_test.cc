// tests/cpu/quantize/quantize_test.cc: every instruction set against the plain loops, byte for
// byte.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "mxkern/numerics/codec.h"
#include "mxkern/numerics/visit.h"
#include "tests/support/edge_memory.h"
#include "tests/support/expect_reference_bytes.h"

namespace mxkern {
namespace {

using namespace test;

TEST(CpuQuantize, EveryOptionGivesTheBytesOfTheReference) {
  const Shape shapes[] = {{1, 40, 70}, {2, 17, 65}, {1, 130, 33}, {1, 3, 260}, {1, 129, 16}};
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for_each_option(scheme, [&](const QuantizeOptions& options) {
        Tensor x(dtype, shapes[turn++ % std::size(shapes)]);
        fill_mixed(x, static_cast<std::uint64_t>(turn));
        for (const ScaleLayout layout : all_scale_layouts) {
          expect_reference_bytes(x, {scheme, layout, options, options});
        }
      });
      if (HasFatalFailure()) return;
    }
  }
}

// Where `even` carries beyond float32, in lanes as in the reference.
TEST(CpuQuantize, AmaxNextToTheLargestNumberGivesTheBytesOfTheReference) {
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for_each_option(scheme, [&](const QuantizeOptions& options) {
        Tensor x(dtype, turn % 2 == 0 ? Shape{1, 40, 150} : Shape{1, 130, 64});
        fill_near_largest(x, static_cast<std::uint64_t>(++turn));
        expect_reference_bytes(x, {scheme, ScaleLayout::row_major, options, options});
      });
      if (HasFatalFailure()) return;
    }
  }
}

// Random words of rows of every width: calls of Philox that rows share, or that begin before them.
TEST(CpuQuantize, RandomWordsOfEveryWidthGiveTheBytesOfTheReference) {
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for (const int columns : {1, 7, 8, 12, 33, 70, 136, 257, 300}) {
      QuantizeOptions options;
      options.rounding = Rounding::stochastic;
      options.seed = 0xFEDCBA9876543210u;
      options.offset = ~std::uint64_t{0} - static_cast<std::uint64_t>(turn);
      options.block_shape = all_block_shapes[turn % 2];
      ++turn;
      Tensor x(all_dtypes[turn % 3], {2, 67, columns}, turn % 4 == 0 ? 3 : 0);
      fill_mixed(x, static_cast<std::uint64_t>(turn));
      expect_reference_bytes(x, {scheme, ScaleLayout::row_major, options, options});
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CpuQuantize, EveryShapeGivesTheBytesOfTheReference) {
  for (const Scheme scheme : all_schemes) {
    const int block = facts_of(scheme).block;
    int turn = 0;
    for (const int rows : {0, 1, 2, block + 1, 127, 129}) {
      for (const int columns : {0, 1, block - 1, block, block + 1, 127, 128, 129, 300}) {
        const DType dtype = all_dtypes[turn % 3];
        const ScaleLayout layout = all_scale_layouts[turn++ % 2];
        Tensor x(dtype, {1, rows, columns});
        fill_mixed(x, static_cast<std::uint64_t>(turn));
        expect_reference_bytes(x, {scheme, layout, {}, {}});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(CpuQuantize, StridedBatchesGiveTheBytesOfTheReference) {
  for (const Scheme scheme : all_schemes) {
    for (const ScaleLayout layout : all_scale_layouts) {
      for (const Rounding rounding : all_roundings) {
        QuantizeOptions options;
        options.rounding = rounding;
        options.seed = 7;
        Tensor x(all_dtypes[static_cast<int>(scheme) % 3], {3, 37, 96}, 5);
        fill_mixed(x, 3);
        expect_reference_bytes(x, {scheme, layout, options, options});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(CpuQuantize, TransformsAreFused) {
  for (const Scheme scheme : {Scheme::nvfp4, Scheme::mxfp8_e4m3, Scheme::mxfp6_e2m3}) {
    for (const DType dtype : all_dtypes) {
      for (const int size : hadamard_sizes) {
        QuantizeOptions plain;
        QuantizeOptions transformed;
        transformed.hadamard.size = size;
        transformed.hadamard.signs = {0x0123456789ABCDEFu, 0xFEDCBA9876543210u};
        Tensor x(dtype, {2, 256, 128 + size});
        fill_mixed(x, static_cast<std::uint64_t>(size));
        expect_reference_bytes(x, {scheme, ScaleLayout::swizzled, transformed, transformed});
        expect_reference_bytes(x, {scheme, ScaleLayout::row_major, plain, transformed});
        transformed.rounding = Rounding::stochastic;
        expect_reference_bytes(x, {scheme, ScaleLayout::row_major, transformed, plain});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(CpuQuantize, NothingBehindXIsRead) {
  for (const DType dtype : all_dtypes) {
    for (const int hadamard : {0, 16}) {
      for (const Shape& shape : {Shape{1, 16, 48}, {1, 32, 16}, {1, 3, 80}, {2, 17, 35}}) {
        if (hadamard != 0 && shape.columns % hadamard != 0) continue;
        QuantizeOptions options;
        options.hadamard.size = hadamard;
        Tensor x(dtype, shape);
        fill_mixed(x, static_cast<std::uint64_t>(shape.columns));
        const auto bytes = static_cast<std::size_t>(shape.size()) * size_of(dtype);
        const EdgeMemory memory(bytes);
        std::memcpy(memory.data(), x.buffer().data, bytes);
        const Buffer at_the_edge = Buffer::dense(memory.data(), dtype, shape);
        const bool both = hadamard == 0 || shape.rows % hadamard == 0;
        const Quantized rows =
            reference_quantize(x, false, Scheme::nvfp4, ScaleLayout::row_major, options);
        for (const cpu::InstructionSet set : available_instruction_sets()) {
          Quantized out(Scheme::nvfp4, shape, ScaleLayout::row_major);
          Quantized turned(Scheme::nvfp4, shape.transposed(), ScaleLayout::row_major);
          cpu::quantize(at_the_edge, &out.out(), options, both ? &turned.out() : nullptr, options,
                        cpu::kernels_for(set));
          ASSERT_TRUE(same_bytes(out, rows)) << cpu::name_of(set) << ", " << describe(x, options);
        }
      }
    }
  }
}

TEST(CpuQuantize, GivenTensorScalesAreUsed) {
  for (const float given : {0.0f, 1e-42f, 1e-30f, 0.37f, 6.0f, 2688.0f, 1e30f, 3.4e38f}) {
    for (const bool is_amax : {true, false}) {
      for (const bool four_over_six : {true, false}) {
        QuantizeOptions options;
        (is_amax ? options.amax : options.tensor_scale) = &given;
        options.four_over_six = four_over_six;
        Tensor x(DType::float32, {1, 33, 80});
        fill_mixed(x, 11);
        expect_reference_bytes(x, {Scheme::nvfp4, ScaleLayout::row_major, options, {}});
        if (HasFatalFailure()) FAIL() << (is_amax ? "amax " : "tensor_scale ") << given;
      }
    }
  }
}

// Enough elements for several threads and every size of tile.
TEST(CpuQuantize, LargeTensorsGiveTheBytesOfTheReference) {
  for (const Scheme scheme : {Scheme::mxfp8_e5m2, Scheme::mxfp6_e3m2, Scheme::nvfp4}) {
    for (const Shape& shape : {Shape{1, 300, 1100}, Shape{1, 2, 140000}, Shape{1, 90000, 3}}) {
      Tensor x(DType::bfloat16, shape);
      fill_mixed(x, 17);
      expect_reference_bytes(x, {scheme, ScaleLayout::swizzled, {}, {}});
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CpuQuantize, ZerosAndSubnormalsGiveTheBytesOfTheReference) {
  const float values[] = {0.0f, -0.0f, 0x1p-149f, -0x1p-130f, 0x1.8p-127f, 0x1p-126f, 0x1p-24f};
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for_each_option(scheme, [&](const QuantizeOptions& options) {
        Tensor x(dtype, {1, 34, 66});
        x.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
          // Each row has one value more than the one before; the first rows are zeros alone.
          x.set(b, r, c, values[(r * 31 + c) % (1 + r / 5)]);
        });
        expect_reference_bytes(x, {scheme, ScaleLayout::row_major, options, options});
      });
      if (HasFatalFailure()) return;
    }
  }
}

// All finite bfloat16 next to largest elements of several mantissas, so that each of them is met at
// many distances from its block's scale.
TEST(CpuQuantize, EveryBFloat16GivesTheBytesOfTheReference) {
  constexpr int block = 32, finite = 0x7F80;
  const int largest[] = {0x0001, 0x0094, 0x2F7F, 0x3F80, 0x3FC1, 0x3FE0, 0x3FFF, 0x40AB, 0x7F7F};
  Tensor x(DType::bfloat16, {1, 2 * finite / (block - 1) + 1, block});
  for (const int amax : largest) {
    int next = 0;
    x.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
      const int bits = c == 0 ? amax : next++ % (2 * finite);
      // Sign and magnitude, the latter no more than the largest.
      const int magnitude = bits % finite <= amax ? bits % finite : bits % finite % (amax + 1);
      const auto sign = static_cast<std::uint16_t>(bits / finite << 15);
      x.set(b, r, c, to_float(bfloat16{static_cast<std::uint16_t>(sign | magnitude)}));
    });
    for (const Scheme scheme : all_schemes) {
      for (const ScaleRule rule : {ScaleRule::rceil, ScaleRule::floor}) {
        QuantizeOptions options;
        if (!facts_of(scheme).has_tensor_scale) options.scale_rule = rule;
        expect_reference_bytes(x, {scheme, ScaleLayout::row_major, options, options});
        if (HasFatalFailure()) FAIL() << "largest " << amax;
      }
    }
  }
}

// float32 at the middle of neighbouring codes and next to it, in blocks whose scale is one.
TEST(CpuQuantize, Float32NextToTiesGivesTheBytesOfTheReference) {
  const float one = 1.0f;
  for (const Scheme scheme : all_schemes) {
    std::vector<float> values;
    float largest = 0.0f;
    visit(scheme, [&](auto tag) {
      using Format = typename decltype(tag)::Format;
      largest = Format::max_value;
      for (int code = 0; code < Format::max_code; ++code) {
        const float below = decode<Format>(static_cast<std::uint8_t>(code));
        const float above = decode<Format>(static_cast<std::uint8_t>(code + 1));
        for (const float next : {-largest, below, above, largest}) {
          const float tie = (below + above) / 2;
          values.insert(values.end(), {tie, -tie, std::nextafter(tie, next)});
          values.push_back(-values.back());
        }
      }
    });
    const int block = facts_of(scheme).block;
    const auto rows = ceil_div(static_cast<std::int64_t>(values.size()), std::int64_t{block - 1});
    Tensor x(DType::float32, {1, rows, block});
    std::size_t next = 0;
    x.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
      x.set(b, r, c, c == 0 ? largest : values[next++ % values.size()]);
    });
    QuantizeOptions options;
    if (facts_of(scheme).has_tensor_scale) options.tensor_scale = &one;
    expect_reference_bytes(x, {scheme, ScaleLayout::row_major, options, options});
    if (HasFatalFailure()) return;
  }
}

// Largest elements of every exponent, with the mantissas at which a rule changes its mind.
TEST(CpuQuantize, EveryLargestElementGivesTheBytesOfTheReference) {
  for (const Scheme scheme : all_schemes) {
    const SchemeFacts facts = facts_of(scheme);
    if (facts.has_tensor_scale) continue;
    const std::uint32_t of_largest = bits_of(facts.max_value) & float32::mantissa_mask;
    std::vector<float> amaxes;
    for (std::uint32_t field = 0; field < 255; ++field) {
      for (const std::uint32_t mantissa : {0u, 0x400000u, 0x600000u, of_largest, 0x7FFFFFu}) {
        for (const std::uint32_t step : {0u, 1u, 0x7FFFFFu}) {
          amaxes.push_back(float_of(field << 23 | ((mantissa + step) & float32::mantissa_mask)));
        }
      }
    }
    // 2^-127 times the largest value, whose ratio is a subnormal number.
    const std::uint32_t edge = bits_of(facts.max_value * 0x1p-127f);
    for (std::uint32_t bits = edge - 40; bits <= edge + 40; ++bits)
      amaxes.push_back(float_of(bits));
    for (const DType dtype : all_dtypes) {
      Tensor x(dtype, {1, static_cast<std::int64_t>(amaxes.size()), facts.block});
      x.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
        x.set(
            b, r, c,
            amaxes[static_cast<std::size_t>(r)] * (c == 0 ? 1.0f : 0.03f * static_cast<float>(c)));
      });
      for (const ScaleRule rule : all_scale_rules) {
        QuantizeOptions options;
        options.scale_rule = rule;
        expect_reference_bytes(x, {scheme, ScaleLayout::row_major, options, options});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// bfloat16 whose products with NVFP4's multipliers lie next to ties, by single steps of a float32.
TEST(CpuQuantize, BFloat16NextToTiesGivesTheBytesOfTheReference) {
  for (const float tie : {0.75f, 1.25f, 1.75f, 2.5f, 3.5f}) {
    for (int step = -8; step <= 8; ++step) {
      // The block's scale is 1, so that its multiplier is about the tie.
      const float multiplier = float_of(bits_of(tie) + static_cast<std::uint32_t>(step));
      const float tensor_scale = 1.0f / multiplier;
      QuantizeOptions options;
      options.tensor_scale = &tensor_scale;
      Tensor x(DType::bfloat16, {1, 32, 32});
      x.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
        const float value = std::ldexp(1.0f, static_cast<int>((r + c) % 6) - 4);
        x.set(b, r, c,
              r % 16 == 0 || c % 16 == 0 ? 6.0f * tensor_scale
              : c % 2 == 0               ? value
                                         : -value);
      });
      expect_reference_bytes(x, {Scheme::nvfp4, ScaleLayout::row_major, options, options});
      if (HasFatalFailure()) FAIL() << "tie " << tie << ", step " << step;
    }
  }
}

TEST(CpuQuantize, WhatRowsAreGivenColumnsFind) {
  const float amax = 3.0f;
  QuantizeOptions given;
  given.amax = &amax;
  for (const float top : {7.0f, 11.0f, 5.0f}) {
    Tensor x(DType::float32, {1, 16, 32});
    x.for_each([&](auto b, auto r, auto c) { x.set(b, r, c, r == 3 && c == 5 ? top : 1.0f); });
    for (const bool rows_are : {true, false}) {
      const QuantizeOptions row_options = rows_are ? given : QuantizeOptions();
      const QuantizeOptions column_options = rows_are ? QuantizeOptions() : given;
      Quantized rows(Scheme::nvfp4, x.shape(), ScaleLayout::row_major);
      Quantized columns(Scheme::nvfp4, x.shape().transposed(), ScaleLayout::row_major);
      quantize_both(x.buffer(), rows.out(), columns.out(), row_options, column_options);
      EXPECT_EQ((rows_are ? rows : columns).tensor_scale, amax / 2688.0f);
      EXPECT_EQ((rows_are ? columns : rows).tensor_scale, top / 2688.0f);
    }
  }
}

TEST(CpuQuantize, EachDirectionHasARoundingOfItsOwn) {
  for (const Scheme scheme : all_schemes) {
    for (int choice = 0; choice < 4; ++choice) {
      Tensor x(DType::bfloat16, {1, 256, 256});
      fill_mixed(x, 31);
      QuantizeOptions rows, columns;
      rows.block_shape = columns.block_shape = all_block_shapes[choice % 2];
      rows.rounding = all_roundings[choice / 2], columns.rounding = all_roundings[1 - choice / 2];
      rows.seed = columns.seed = 9;
      expect_reference_bytes(x, {scheme, ScaleLayout::row_major, rows, columns});
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace mxkern
