// tests/cpu/quantize/four_over_six_test.cc: NVFP4's choice between two scales where it is a close
// one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/expect_reference_bytes.h"

namespace mxkern {
namespace {

using namespace test;

// A square has one scale, whichever way its codes go: its errors are added up in one order.
TEST(CpuFourOverSix, NearTiesOfSquaresHaveOneScale) {
  const float amax = 2688.0f;
  QuantizeOptions options;
  options.four_over_six = true;
  options.block_shape = BlockShape::square;
  options.amax = &amax;
  for (const Shape& shape : {Shape{1, 256, 320}, Shape{2, 100, 84}}) {
    Tensor x(DType::float32, shape);
    fill_near_ties(x, 19);
    expect_reference_bytes(x, {Scheme::nvfp4, ScaleLayout::row_major, options, options});
    if (HasFatalFailure()) return;
    const Quantized rows =
        reference_quantize(x, false, Scheme::nvfp4, ScaleLayout::row_major, options);
    const Quantized columns =
        reference_quantize(x, true, Scheme::nvfp4, ScaleLayout::row_major, options);
    const ScaleIndex down = rows.view.scale_index(), across = columns.view.scale_index();
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      for (std::int64_t c = 0; c < shape.columns; ++c) {
        ASSERT_EQ(rows.scales.data()[down.offset(r, c / 16)],
                  columns.scales.data()[across.offset(c, r / 16)])
            << "row " << r << ", column " << c;
      }
    }
  }
}

// Errors of both scales that differ by what a product of float32 loses: they are fused.
TEST(CpuFourOverSix, NearTiesOfFourAndSixAreFused) {
  RandomBits random(37);
  for (int i = 0; i < 20; ++i) {
    const float amax = std::fabs(float_of(random.float_bits(-3, 3) | 0x1357u));
    QuantizeOptions options;
    options.four_over_six = true;
    options.amax = &amax;
    Tensor x(DType::float32, {1, 64, 64});
    x.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
      const float values[] = {0.0f, 2.125f, 4.25f, 1.0f, 1.5f};  // of a largest one of 6
      const float value = c % 16 == 0 || r % 16 == 0 ? 6.0f : values[random.between(0, 4)];
      x.set(b, r, c, value * (amax / 2688.0f) * (c % 3 == 0 ? -1.0f : 1.0f));
    });
    expect_reference_bytes(x, {Scheme::nvfp4, ScaleLayout::row_major, options, options});
    if (HasFatalFailure()) return;
  }
}

// Errors whose exact sums are as large under both scales: what is rounded decides.
TEST(CpuFourOverSix, SquaredErrorsAreAddedWithOneRounding) {
  const float amax = 2688.0f;
  QuantizeOptions options;
  options.four_over_six = true;
  options.amax = &amax;
  RandomBits random(41);
  Tensor x(DType::float32, {1, 200, 16});
  x.for_each([&](auto b, auto r, auto c) { x.set(b, r, c, c == 0 ? 6.0f : 0.0f); });
  for (std::int64_t r = 0; r < 200; ++r) {
    // 1/8 above 2 and below 2.25, and three differences from it that add up to nothing.
    const int first = random.between(-4096, 4096), second = random.between(-4096, 4096);
    int column = 3;
    for (const int more : {first, second, -first - second}) {
      x.set(0, r, column++, 2.125f + static_cast<float>(more) * 0x1p-20f);
    }
  }
  expect_reference_bytes(x, {Scheme::nvfp4, ScaleLayout::row_major, options, options});
}

// Blocks of every magnitude, subnormal ones too, under tensor scales of every magnitude: scales
// that are zero, subnormal or saturate, multipliers that are held to the largest float32; and
// blocks that are not finite beside them.
TEST(CpuFourOverSix, BlocksOfEveryMagnitude) {
  RandomBits random(43);
  for (const float amax :
       {0x1p-149f, 0x1p-120f, 0x1.8p-20f, 1.0f, 2688.0f, 0x1p90f, 0x1.fffffep127f}) {
    for (const BlockError error : all_block_errors) {
      QuantizeOptions options;
      options.four_over_six = true;
      options.block_error = error;
      options.amax = &amax;
      Tensor x(DType::float32, {1, 160, 208});
      const int most = std::ilogb(amax);
      x.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
        const int exponent = most - static_cast<int>((r / 16 * 13 + c / 16) % 24) + 2;
        const int low = std::clamp(exponent - 3, -127, 127);
        float value = float_of(random.float_bits(low, std::clamp(exponent, low, 127)));
        if ((r * 208 + c) % 5003 == 0) value = r % 2 == 0 ? NAN : INFINITY;
        x.set(b, r, c, value);
      });
      expect_reference_bytes(x, {Scheme::nvfp4, ScaleLayout::row_major, options, options});
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace mxkern
