// tests/ops/swiglu_test.cc: SwiGLU against double precision, its exponential over all of float32,
// and what is refused.
#include "mxkern/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cpu/experts/swiglu.h"
#include "mxkern/core/error.h"
#include "mxkern/numerics/swiglu.h"
#include "tests/support/error_message.h"
#include "tests/support/gemm_operand.h"
#include "tests/support/kernel_tables.h"

namespace mxkern {
namespace {

using namespace test;

TEST(Exponential, WithinTwoUnitsInTheLastPlace) {
  double worst = 0.0;
  for (std::uint32_t bits = 0; bits < 0x7F800000u; bits += 997) {
    for (const float x : {float_of(bits), -float_of(bits)}) {
      const double wanted = std::exp(static_cast<double>(x));
      const float got = exponential(x);
      if (wanted > std::numeric_limits<float>::max()) {
        // The largest float32 that has a finite result is off by less than it is large.
        ASSERT_GT(got, 3.4e38f) << x;
        continue;
      }
      const int exponent = wanted > 0 ? std::max(std::ilogb(wanted), -126) : -126;
      const double unit = std::ldexp(1.0, exponent - 23);
      worst = std::max(worst, std::fabs(static_cast<double>(got) - wanted) / unit);
    }
  }
  EXPECT_LE(worst, 2.0);
}

TEST(Exponential, SpecialValues) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exponential(infinity), infinity);
  EXPECT_EQ(exponential(-infinity), 0.0f);
  EXPECT_TRUE(std::isnan(exponential(std::numeric_limits<float>::quiet_NaN())));
}

double wanted(double gate, double up, const SwigluOptions& o) {
  gate = std::fmin(gate, o.limit);
  up = std::fmax(std::fmin(up, o.limit), -static_cast<double>(o.limit));
  return gate / (1.0 + std::exp(-o.alpha * gate)) * (up + o.offset);
}

TEST(Swiglu, AgreesWithDoublePrecision) {
  for (const DType dtype : all_dtypes) {
    for (const bool is_gpt_oss : {false, true}) {
      const SwigluOptions options = is_gpt_oss ? SwigluOptions::gpt_oss() : SwigluOptions{};
      for (const std::int64_t columns : {1, 7, 8, 255, 256, 300, 2049}) {
        PlainTensor x(dtype, {2, 5, 2 * columns}, 3, 1), out(dtype, {2, 5, columns}, 1, 7);
        const Values normal = normal_values(static_cast<std::uint64_t>(columns));
        x.fill([&](std::int64_t b, std::int64_t r, std::int64_t k) { return 6 * normal(b, r, k); });
        swiglu(x.buffer(), out.buffer(), options);
        const double relative = dtype == DType::float32   ? 1e-6
                                : dtype == DType::float16 ? 1e-3
                                                          : 8e-3;
        for (std::int64_t i = 0; i < 10 * columns; ++i) {
          const std::int64_t b = i / columns / 5, r = i / columns % 5, k = i % columns;
          const double gate = x.value(b, r, is_gpt_oss ? 2 * k : k);
          const double up = x.value(b, r, is_gpt_oss ? 2 * k + 1 : columns + k);
          const double value = wanted(gate, up, options);
          ASSERT_NEAR(out.value(b, r, k), value, relative * std::fabs(value) + 1e-7)
              << name_of(dtype) << ", " << b << ", " << r << ", " << k;
        }
      }
    }
  }
}

// Every instruction set gives the bytes of the scalar function.
TEST(Swiglu, EveryInstructionSet) {
  for (const cpu::InstructionSet set : available_instruction_sets()) {
    for (const DType dtype : all_dtypes) {
      for (const bool is_gpt_oss : {false, true}) {
        const SwigluOptions options = is_gpt_oss ? SwigluOptions::gpt_oss() : SwigluOptions{};
        constexpr std::int64_t columns = 301;
        PlainTensor x(dtype, {1, 3, 2 * columns}), out(dtype, {1, 3, columns}), wanted = out;
        const Values normal = normal_values(3);
        x.fill([&](std::int64_t b, std::int64_t r, std::int64_t k) {
          return std::ldexp(normal(b, r, k), static_cast<int>(k % 50 - 40));
        });
        for (std::int64_t i = 0; i < 3 * columns; ++i) {
          const std::int64_t r = i / columns, k = i % columns;
          const double gate = x.value(0, r, is_gpt_oss ? 2 * k : k);
          const double up = x.value(0, r, is_gpt_oss ? 2 * k + 1 : columns + k);
          wanted.set(0, r, k,
                     swiglu(static_cast<float>(gate), static_cast<float>(up), options.alpha,
                            options.limit, options.offset));
        }
        cpu::swiglu(x.buffer(), out.buffer(), options, cpu::kernels_for(set));
        ASSERT_EQ(out.bytes, wanted.bytes) << name_of(set) << ", " << name_of(dtype);
      }
    }
  }
}

TEST(Swiglu, NanAndInf) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const float x[] = {nan, 1.0f, infinity, -200.0f, 1.0f, nan, 2.0f, 3.0f};
  float out[4];
  swiglu(Buffer::dense(x, DType::float32, {1, 1, 8}),
         Buffer::dense(out, DType::float32, {1, 1, 4}));
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
  EXPECT_EQ(out[2], infinity);
  EXPECT_EQ(out[3], 0.0f);  // e^200 is Inf
  SwigluOptions limited = SwigluOptions::gpt_oss();
  swiglu(Buffer::dense(x, DType::float32, {1, 1, 8}), Buffer::dense(out, DType::float32, {1, 1, 4}),
         limited);
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[2]));
}

TEST(Swiglu, RefusesWhatDoesNotFit) {
  float memory[64] = {};
  const auto expect = [&](const char* says, Shape x, Shape out, SwigluOptions options = {},
                          int at = 32, DType dtype = DType::float32) {
    expect_failure<InvalidArgument>(says, [&] {
      swiglu(Buffer::dense(memory, DType::float32, x), Buffer::dense(memory + at, dtype, out),
             options);
    });
  };
  expect("swiglu: x has 7 columns; expected an even number", {1, 2, 7}, {1, 2, 3});
  expect("swiglu: out has shape [1, 2, 3]; expected [1, 2, 4]", {1, 2, 8}, {1, 2, 3});
  expect("swiglu: out overlaps x", {1, 2, 8}, {1, 2, 4}, {}, 15);
  expect("swiglu: out has dtype float16; expected that of x, float32", {1, 2, 8}, {1, 2, 4}, {}, 32,
         DType::float16);
  SwigluOptions options;
  options.limit = -1.0f;
  expect("swiglu: limit is -1", {1, 2, 8}, {1, 2, 4}, options);
  options = {};
  options.alpha = std::numeric_limits<float>::infinity();
  expect("swiglu: alpha is inf", {1, 2, 8}, {1, 2, 4}, options);
  options = {};
  options.layout = static_cast<GateLayout>(2);
  expect("swiglu: layout is number 2", {1, 2, 8}, {1, 2, 4}, options);
}

}  // namespace
}  // namespace mxkern
