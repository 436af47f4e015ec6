// tests/cuda/experts/swiglu_folded_test.cc: SwiGLU, quantized and folded by one kernel, against one
// kernel after the other, byte for byte.
#include <cmath>
#include <limits>
#include <vector>

#include "cuda/experts/swiglu.h"
#include "tests/support/cuda/folded_rows.h"
#include "tests/support/cuda/hopper_test.h"
#include "tests/support/cuda/operand.h"

namespace mxkern {
namespace {

using namespace test;

using CudaSwigluFolded = HopperTest;

// Rows that one thread block a multiprocessor has, in 4 and 8 octets a lane, and rows of many.
TEST_F(CudaSwigluFolded, TheBytesOfOneAfterTheOther) {
  std::uint64_t turn = 0;
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    for (const GateLayout layout : all_gate_layouts) {
      for (const Shape& shape : {Shape{1, 1, 32}, Shape{1, 37, 64}, Shape{1, 130, 2880},
                                 Shape{1, 400, 2048}, Shape{1, 5000, 96}, Shape{1, 1000, 4128}}) {
        ++turn;
        PlainTensor x(dtype, {1, shape.rows, 2 * shape.columns}, turn % 2 * 8);
        PlainTensor middle(dtype, shape);
        const Values normal = normal_values(turn);
        x.fill([&](std::int64_t b, std::int64_t r, std::int64_t k) {
          const double value = std::ldexp(normal(b, r, k), static_cast<int>((r * 7 + k) % 40 - 25));
          // Some blocks of zeros, and some that are poisoned.
          if (k / 64 % 5 == 3) return 0.0;
          return (r * 31 + k) % 997 == 5 ? std::numeric_limits<double>::infinity() : value;
        });
        SwigluOptions options = turn % 3 == 0 ? SwigluOptions{} : SwigluOptions::gpt_oss();
        options.layout = layout;
        const ScaleRule rule = all_scale_rules[turn % std::size(all_scale_rules)];
        DevicePlainTensor device_x(x), device_middle(middle);
        Folded wanted(shape), got(shape);
        wanted.fill_on_device([&](std::uint8_t* memory) {
          cuda::swiglu("swiglu", device_x.view(), device_middle.view(), options, {});
          cuda::quantize_folded("quantize", device_middle.view(), Scheme::mxfp8_e4m3, rule, memory,
                                nullptr, {});
        });
        got.fill_on_device([&](std::uint8_t* memory) {
          ASSERT_TRUE(cuda::swiglu_folded("swiglu", device_x.view(), shape, options,
                                          Scheme::mxfp8_e4m3, rule, memory, {}));
        });
        ASSERT_EQ(got.bytes, wanted.bytes)
            << name_of(dtype) << ", " << shape.rows << " x " << shape.columns << ", "
            << (layout == GateLayout::halves ? "halves" : "interleaved");
      }
    }
  }
}

// What the kernel is not for is left alone.
TEST_F(CudaSwigluFolded, OthersAreLeftToOneAfterTheOther) {
  struct Case {
    DType dtype;
    std::int64_t columns;
    bool misaligned;
    Scheme scheme = Scheme::mxfp8_e4m3;
  };
  for (const auto& [dtype, columns, misaligned, scheme] :
       {Case{DType::float32, 64, false},
        {DType::bfloat16, 72, false},
        {DType::bfloat16, 64, true},
        {DType::bfloat16, 32 * 1024, false},
        {DType::bfloat16, 64, false, Scheme::mxfp8_e5m2}}) {
    const Shape shape = {1, 300, columns};
    PlainTensor x(dtype, {1, shape.rows, 2 * columns});
    DevicePlainTensor device_x(x, misaligned);
    Folded folded(shape);
    const std::vector<std::uint8_t> before = folded.bytes;
    folded.fill_on_device([&](std::uint8_t* memory) {
      EXPECT_FALSE(cuda::swiglu_folded("swiglu", device_x.view(), shape, {}, scheme,
                                       ScaleRule::rceil, memory, {}));
    });
    EXPECT_EQ(folded.bytes, before);
  }
}

}  // namespace
}  // namespace mxkern
