// tests/ops/gemm_scales_test.cc: the matrix product where scales spread widely, and where blocks or
// elements are not finite.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/float_flags.h"
#include "tests/support/gemm_reference.h"

namespace mxkern {
namespace {

using test::agrees;
using test::describe_case;
using test::normal_values;
using test::PlainTensor;
using test::QuantizedOperand;
using test::RandomBits;
using test::Values;

constexpr double largest_relative_error = 2e-5;
constexpr float infinity = std::numeric_limits<float>::infinity();

double uniform(RandomBits& random) { return static_cast<double>(random.next()) * 0x1p-32; }

// What the values of real tensors look like, and what they should never look like.
struct Distribution {
  const char* name;
  Values left;
  Values right;
};

Values scaled(std::uint64_t seed, std::function<double(std::int64_t row, std::int64_t k)> scale) {
  return
      [values = normal_values(seed), scale](std::int64_t batch, std::int64_t row, std::int64_t k) {
        return values(batch, row, k) * scale(row, k);
      };
}

Values outlier_channels(std::uint64_t seed, std::int64_t channel) {
  return scaled(
      seed, [channel](std::int64_t, std::int64_t k) { return k % 200 == channel ? 60.0 : 1.0; });
}

Values student(std::uint64_t seed) {
  return [seed](std::int64_t batch, std::int64_t row, std::int64_t k) {
    double squares = 0.0;
    for (std::uint64_t i = 1; i <= 3; ++i) {
      const double value = normal_values(seed + i * 1000)(batch, row, k);
      squares += value * value;
    }
    return normal_values(seed)(batch, row, k) / std::sqrt(squares / 3.0);
  };
}

Values lognormal_blocks(std::uint64_t seed) {
  return scaled(seed, [seed](std::int64_t row, std::int64_t k) {
    RandomBits random(seed + static_cast<std::uint64_t>(row * 5003 + k / 32));
    return std::exp2(17.0 * (uniform(random) - 0.5));
  });
}

// Where the left operand is large, the right one is small.
Values octaves(std::uint64_t seed, double spread, double sign) {
  return scaled(seed, [spread, sign](std::int64_t, std::int64_t k) {
    RandomBits random(static_cast<std::uint64_t>(k / 32));
    return std::exp2(sign * std::floor(spread * (uniform(random) - 0.5)));
  });
}

Values one_huge_block(std::uint64_t seed, std::int64_t block) {
  return scaled(seed,
                [block](std::int64_t, std::int64_t k) { return k / 32 == block ? 0x1p60 : 1.0; });
}

std::vector<Distribution> distributions() {
  std::vector<Distribution> all = {
      {"normal", normal_values(1), normal_values(2)},
      {"outlier channels left", outlier_channels(3, 7), normal_values(4)},
      {"Student t3", student(5), student(6)},
      {"lognormal blocks", lognormal_blocks(7), lognormal_blocks(8)},
      {"outlier channels in both", outlier_channels(9, 7), outlier_channels(10, 90)},
      {"one huge block", one_huge_block(11, 3), one_huge_block(12, 5)},
      {"a row of zeros",
       scaled(13, [](std::int64_t row, std::int64_t) { return row % 3 == 0 ? 0.0 : 1.0; }),
       scaled(14, [](std::int64_t row, std::int64_t) { return row % 4 == 0 ? 0.0 : 1.0; })},
  };
  for (const int spread : {10, 20, 30, 40}) {
    all.push_back({"opposite octaves", octaves(15, spread, 1.0), octaves(16, spread, -1.0)});
  }
  return all;
}

// Every unit's product is right, and no further off than sums in float32 are.
template <class Left>
void expect_float32_sums(Left& a, QuantizedOperand& b, const Distribution& distribution) {
  PlainTensor out(DType::float32, {1, a.view.shape.rows, b.view.shape.rows});
  const test::Reference want = test::multiply(a, b, out);
  for (const GemmUnit unit : test::available_units()) {
    test::run_unit(unit, a.operand(), b.quantized(), out.buffer());
    const std::string what =
        describe_case(unit, a.operand(), b.quantized()) + ", " + distribution.name;
    ASSERT_TRUE(agrees(out, want, what));
    EXPECT_LE(test::relative_error(out, want), largest_relative_error) << what;
  }
}

TEST(GemmScalesTest, ErrorIsThatOfTheFloat32Sum) {
  const std::pair<Scheme, Scheme> pairs[] = {{Scheme::mxfp8_e4m3, Scheme::mxfp8_e4m3},
                                             {Scheme::mxfp8_e5m2, Scheme::mxfp4},
                                             {Scheme::mxint8, Scheme::mxfp6_e3m2},
                                             {Scheme::nvfp4, Scheme::nvfp4}};
  for (const Distribution& distribution : distributions()) {
    for (const auto& [left, right] : pairs) {
      QuantizedOperand a(left, {1, 24, 800}, ScaleLayout::row_major);
      QuantizedOperand b(right, {1, 33, 800}, ScaleLayout::swizzled);
      a.quantize(distribution.left);
      b.quantize(distribution.right);
      expect_float32_sums(a, b, distribution);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(GemmScalesTest, ErrorOfAPlainLeftOperand) {
  for (const Distribution& distribution : distributions()) {
    for (const DType dtype : all_dtypes) {
      PlainTensor a(dtype, {1, 24, 800});
      // float16 does not reach as far as the widest distributions.
      const double limit = dtype == DType::float16 ? 60000.0 : 1e30;
      a.fill([&](std::int64_t batch, std::int64_t row, std::int64_t k) {
        return std::clamp(distribution.left(batch, row, k), -limit, limit);
      });
      QuantizedOperand b(Scheme::mxfp8_e4m3, {1, 33, 800}, ScaleLayout::row_major);
      b.quantize(distribution.right);
      expect_float32_sums(a, b, distribution);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Rows of 2^left times rows of 2^right: the result counts, not what is on the way to it.
TEST(GemmScalesTest, PowersFarFromOneMeet) {
  const std::pair<int, int> exponents[] = {{-126, 120},  {127, -126}, {-118, -20}, {-60, -60},
                                           {-126, -126}, {70, 70},    {127, 127}};
  for (const Scheme scheme : {Scheme::mxfp8_e4m3, Scheme::mxfp8_e5m2, Scheme::mxint8}) {
    for (const auto& [left, right] : exponents) {
      QuantizedOperand a(scheme, {1, 3, 64}, ScaleLayout::row_major);
      QuantizedOperand b(scheme, {1, 4, 64}, ScaleLayout::row_major);
      RandomBits random(29);
      for (QuantizedOperand* operand : {&a, &b}) {
        operand->quantize(normal_values(random.next()));
        operand->for_each_row(
            [&, power = operand == &a ? left : right](std::int64_t batch, std::int64_t row) {
              for (int block = 0; block < 2; ++block) {
                operand->scale(batch, row, block) = static_cast<std::uint8_t>(power + 127 - block);
              }
            });
      }
      PlainTensor out(DType::float32, {1, 3, 4});
      const test::Reference want = test::multiply(a, b, out);
      for (const GemmUnit unit : test::available_units()) {
        test::run_unit(unit, a.operand(), b.quantized(), out.buffer());
        ASSERT_TRUE(agrees(out, want, describe_case(unit, a.operand(), b.quantized())))
            << "2^" << left << " times 2^" << right;
      }
    }
  }
}

// Row r: a block of zeros under the largest scale, then one of elements under a scale that is
// `step * r` powers of two smaller.
void fill_falling_rows(QuantizedOperand& operand, int largest, int step, std::uint32_t code) {
  operand.for_each_row([&](std::int64_t batch, std::int64_t row) {
    for (std::int64_t k = 0; k < 64; ++k) operand.set_code(batch, row, k, k < 32 ? 0 : code);
    operand.scale(batch, row, 0) = static_cast<std::uint8_t>(largest);
    operand.scale(batch, row, 1) = static_cast<std::uint8_t>(largest - step * row);
  });
}

// However far: one product is all there is of an output.
TEST(GemmScalesTest, BlocksFarBelowTheLargestOfTheirRowCount) {
  constexpr int largest = 180;
  for (const Scheme scheme : all_schemes) {
    if (scheme == Scheme::nvfp4) continue;
    const std::uint32_t ones = (1u << (facts_of(scheme).bits - 1)) - 1;
    const std::uint32_t biggest = scheme == Scheme::mxfp8_e4m3   ? 0x7E
                                  : scheme == Scheme::mxfp8_e5m2 ? 0x7B
                                                                 : ones;
    for (const auto& [left, right] : {std::pair{1u, 1u}, {biggest, 1u}, {biggest, biggest}}) {
      QuantizedOperand a(scheme, {1, 57, 64}, ScaleLayout::row_major);
      QuantizedOperand b(scheme, {1, 17, 64}, ScaleLayout::row_major);
      fill_falling_rows(a, largest, 3, left);
      fill_falling_rows(b, largest, 11, right);
      PlainTensor out(DType::float32, {1, 57, 17});
      // Results of the smallest scales are within float32.
      const GemmOptions options{.alpha = 0x1p60f};
      const test::Reference want = test::multiply(a, b, out, options);
      for (const GemmUnit unit : test::available_units()) {
        test::run_unit(unit, a.operand(), b.quantized(), out.buffer(), options);
        ASSERT_TRUE(agrees(out, want, describe_case(unit, a.operand(), b.quantized())));
      }
    }
  }
}

// Where the left operand is large the right one is small, and the other way round, as far as E8M0
// goes: what a row's largest scale makes of the others must not take the sum along.
TEST(GemmScalesTest, OppositeScalesMeet) {
  for (const Scheme scheme : all_schemes) {
    if (scheme == Scheme::nvfp4) continue;
    QuantizedOperand a(scheme, {1, 20, 160}, ScaleLayout::swizzled);
    QuantizedOperand b(scheme, {1, 40, 160}, ScaleLayout::row_major);
    a.quantize(normal_values(43));
    b.quantize(normal_values(44));
    RandomBits random(45);
    for (int block = 0; block < 5; ++block) {
      const int power = static_cast<int>(random.next() % 240) - 120;
      const auto set = [block](QuantizedOperand& operand, int exponent) {
        operand.for_each_row([&](std::int64_t batch, std::int64_t row) {
          operand.scale(batch, row, block) =
              static_cast<std::uint8_t>(127 + exponent + (row + block) % 3);
        });
      };
      set(a, power);
      set(b, -power);
    }
    PlainTensor bias(DType::float32, {1, 1, 40}), out(DType::float32, {1, 20, 40});
    bias.fill(normal_values(46));
    const Buffer bias_buffer = bias.buffer();
    for (const float beta : {0.0f, 0.5f}) {
      const GemmOptions options{.alpha = 0.75f, .beta = beta, .bias = &bias_buffer};
      for (const GemmUnit unit : test::available_units()) {
        out.fill(normal_values(47));
        const test::Reference want = test::multiply(a, b, out, options, &bias);
        test::run_unit(unit, a.operand(), b.quantized(), out.buffer(), options);
        ASSERT_TRUE(agrees(out, want, describe_case(unit, a.operand(), b.quantized())));
      }
    }
  }
}

// A plain row's small elements meet large scales.
TEST(GemmScalesTest, SmallElementsOfAPlainRowCount) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    PlainTensor a(dtype, {1, 20, 96});
    a.fill([](std::int64_t, std::int64_t row, std::int64_t k) {
      return k < 32 ? 0x1p120 : k < 64 ? std::ldexp(1.0 + row, -130) : 0.0;
    });
    QuantizedOperand b(Scheme::mxfp8_e5m2, {1, 40, 96}, ScaleLayout::row_major);
    b.quantize(normal_values(48));
    b.for_each_row([&](std::int64_t batch, std::int64_t row) {
      b.scale(batch, row, 0) = 0;
      for (std::int64_t k = 0; k < 32; ++k) b.set_code(batch, row, k, row % 2 == 0 ? 0 : 1);
      b.scale(batch, row, 1) = static_cast<std::uint8_t>(170 + row % 80);
    });
    PlainTensor out(DType::float32, {1, 20, 40});
    const test::Reference want = test::multiply(a, b, out);
    for (const GemmUnit unit : test::available_units()) {
      test::run_unit(unit, a.operand(), b.quantized(), out.buffer());
      ASSERT_TRUE(agrees(out, want, describe_case(unit, a.operand(), b.quantized())));
    }
  }
}

TEST(GemmScalesTest, PlainRowsFarFromOne) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const auto& [left, right] : {std::pair{-140, 127}, {-130, 100}, {120, -120}, {126, 20}}) {
      PlainTensor a(dtype, {1, 3, 40});
      a.fill([power = left](std::int64_t, std::int64_t row, std::int64_t k) {
        return std::ldexp(k % 3 == 0 ? -1.0 : 1.0, power) * static_cast<double>(row + 1);
      });
      QuantizedOperand b(Scheme::mxfp8_e4m3, {1, 4, 40}, ScaleLayout::row_major);
      b.quantize(normal_values(31));
      b.for_each_row([&, power = right](std::int64_t batch, std::int64_t row) {
        b.scale(batch, row, 0) = b.scale(batch, row, 1) = static_cast<std::uint8_t>(power + 127);
      });
      PlainTensor out(DType::float32, {1, 3, 4});
      const test::Reference want = test::multiply(a, b, out);
      for (const GemmUnit unit : test::available_units()) {
        test::run_unit(unit, a.operand(), b.quantized(), out.buffer());
        ASSERT_TRUE(agrees(out, want, describe_case(unit, a.operand(), b.quantized())))
            << "2^" << left << " times 2^" << right;
      }
    }
  }
}

// Tensor scales and alpha may lie far from one, as long as their product does not.
TEST(GemmScalesTest, TensorScalesFarFromOne) {
  QuantizedOperand a(Scheme::nvfp4, {1, 5, 48}, ScaleLayout::row_major);
  QuantizedOperand b(Scheme::nvfp4, {1, 6, 48}, ScaleLayout::row_major);
  a.quantize(normal_values(32));
  b.quantize(normal_values(33));
  for (const auto& [left, right, alpha] : {std::tuple{1e-38f, 1e38f, 1.0f},
                                           {1e30f, 1e30f, 1e-37f},
                                           {0.0f, 1e38f, 1.0f},
                                           {1e-44f, 1e20f, 1e20f},
                                           {1e38f, 1e38f, 1.0f}}) {
    a.tensor_scale = left;
    b.tensor_scale = right;
    PlainTensor out(DType::float32, {1, 5, 6});
    const GemmOptions options{.alpha = alpha};
    const test::Reference want = test::multiply(a, b, out, options);
    for (const GemmUnit unit : test::available_units()) {
      test::run_unit(unit, a.operand(), b.quantized(), out.buffer(), options);
      ASSERT_TRUE(agrees(out, want, describe_case(unit, a.operand(), b.quantized())))
          << left << " * " << right << " * " << alpha;
    }
  }
}

TEST(GemmScalesTest, PoisonedBlocksReachTheirRowsAndColumnsOnly) {
  for (const Scheme left : all_schemes) {
    const Scheme right = left == Scheme::nvfp4 ? Scheme::mxfp8_e4m3 : Scheme::nvfp4;
    QuantizedOperand a(left, {1, 20, 150}, ScaleLayout::swizzled);
    QuantizedOperand b(right, {1, 40, 150}, ScaleLayout::row_major);
    a.quantize(normal_values(34));
    b.quantize(normal_values(35));
    const auto last = [](Scheme scheme) { return ceil_div(150, facts_of(scheme).block) - 1; };
    a.scale(0, 4, 1) = facts_of(left).nan_scale;
    a.scale(0, 19, last(left)) = facts_of(left).nan_scale;
    b.scale(0, 33, last(right)) = facts_of(right).nan_scale;
    PlainTensor out(DType::float32, {1, 20, 40});
    const test::Reference want = test::multiply(a, b, out);
    ASSERT_TRUE(std::isnan(want.at(0, 4, 0).value) && !std::isnan(want.at(0, 5, 0).value));
    for (const GemmUnit unit : test::available_units()) {
      test::run_unit(unit, a.operand(), b.quantized(), out.buffer());
      ASSERT_TRUE(agrees(out, want, describe_case(unit, a.operand(), b.quantized())));
    }
  }
}

TEST(GemmScalesTest, InfAndNanOfAPlainOperandPropagate) {
  for (const DType dtype : all_dtypes) {
    PlainTensor a(dtype, {1, 9, 70});
    a.fill(normal_values(36));
    a.set(0, 1, 3, infinity);
    a.set(0, 2, 69, -infinity);
    a.set(0, 3, 0, infinity);
    a.set(0, 3, 1, -infinity);
    a.set(0, 4, 5, std::numeric_limits<float>::quiet_NaN());
    a.set(0, 5, 6, float_of(0x7F800001u));  // a NaN whose upper half alone would be Inf
    QuantizedOperand b(Scheme::mxint8, {1, 10, 70}, ScaleLayout::row_major);
    b.quantize(normal_values(37));
    b.set_code(0, 2, 3, 0);  // Inf * 0
    PlainTensor out(DType::float32, {1, 9, 10});
    const test::Reference want = test::multiply(a, b, out);
    ASSERT_TRUE(std::isinf(want.at(0, 1, 0).value) && std::isnan(want.at(0, 1, 2).value));
    for (const GemmUnit unit : test::available_units()) {
      test::run_unit(unit, a.operand(), b.quantized(), out.buffer());
      ASSERT_TRUE(agrees(out, want, describe_case(unit, a.operand(), b.quantized())));
    }
  }
}

// Any bytes are codes and scales.
TEST(GemmScalesTest, AnyBytes) {
  RandomBits random(38);
  for (const Scheme left : all_schemes) {
    for (const Scheme right : all_schemes) {
      QuantizedOperand a(left, {1, 33, 83}, ScaleLayout::swizzled);
      QuantizedOperand b(right, {1, 34, 83}, ScaleLayout::row_major);
      a.fill_with_random_bytes(random);
      b.fill_with_random_bytes(random);
      a.tensor_scale = float_of(random.next());
      PlainTensor out(DType::float32, {1, 33, 34});
      const test::Reference want = test::multiply(a, b, out);
      for (const GemmUnit unit : test::available_units()) {
        test::run_unit(unit, a.operand(), b.quantized(), out.buffer());
        ASSERT_TRUE(agrees(out, want, describe_case(unit, a.operand(), b.quantized())));
      }
    }
  }
}

TEST(GemmScalesTest, CallersFloatEnvironmentDoesNotMatter) {
  QuantizedOperand a(Scheme::mxfp8_e4m3, {1, 16, 64}, ScaleLayout::row_major);
  QuantizedOperand b(Scheme::mxfp8_e4m3, {1, 32, 64}, ScaleLayout::row_major);
  a.quantize(scaled(39, [](std::int64_t, std::int64_t) { return 0x1p-65; }));
  b.quantize(scaled(40, [](std::int64_t, std::int64_t) { return 0x1p-68; }));
  for (const GemmUnit unit : test::available_units()) {
    PlainTensor out(DType::float32, {1, 16, 32});
    const test::Reference want = test::multiply(a, b, out);
    {
      const test::FlushedSubnormals flushed;
      test::run_unit(unit, a.operand(), b.quantized(), out.buffer());
      EXPECT_TRUE(flushed.are_still_set());
    }
    // Subnormal results: an absolute error of half a subnormal step is in the tolerance.
    ASSERT_TRUE(agrees(out, want, describe_case(unit, a.operand(), b.quantized())));
  }
}

}  // namespace
}  // namespace mxkern
