// tests/cuda/quantize/fake_quantize_test.cc: fake_quantize on the device against the CPU, bit for
// bit.
#include "mxkern/mxkern.h"
#include "tests/support/cuda/memory.h"
#include "tests/support/error_message.h"
#include "tests/support/quantize_options.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using namespace test;

using CudaFakeQuantize = CudaTest;

void expect_cpu_bits(Tensor& x, Scheme scheme, QuantizeOptions options, bool misaligned,
                     bool in_place) {
  Tensor wanted(x.dtype(), x.shape()), got(x.dtype(), x.shape());
  fake_quantize(x.buffer(), scheme, wanted.buffer(), options);
  DeviceTensor device_x(x, misaligned), device_out(got, misaligned);
  DeviceFloat found;
  options.found_amax = found.address();
  fake_quantize(device_x.buffer(), scheme, device_out.buffer(), options);
  device_out.copy_to(got);
  const auto expect = [&](const Tensor& result) {
    result.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
      if (::testing::Test::HasFatalFailure()) return;
      ASSERT_EQ(result.bits(b, r, c), wanted.bits(b, r, c))
          << name_of(scheme) << ", " << describe(x, options) << ", [" << x.shape().batch << ", "
          << x.shape().rows << ", " << x.shape().columns << "] at " << b << ", " << r << ", " << c
          << ": " << show(result.get(b, r, c)) << ", wanted " << show(wanted.get(b, r, c));
    });
    ASSERT_TRUE(result.bytes().margins_are_intact());
  };
  expect(got);
  if (!in_place || ::testing::Test::HasFatalFailure()) return;
  fake_quantize(device_x.buffer(), scheme, device_x.buffer(), options);
  device_x.copy_to(x);
  expect(x);
}

TEST_F(CudaFakeQuantize, EveryOption) {
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for_each_option(scheme, [&](const QuantizeOptions& options) {
      if (options.four_over_six && options.block_shape == BlockShape::square) return;
      for (const DType dtype : all_dtypes) {
        for (const Shape& shape : {Shape{1, 1, 16}, Shape{2, 37, 83}, Shape{1, 130, 304},
                                   Shape{3, 2, 128}, Shape{1, 64, 2048}}) {
          if (HasFatalFailure()) return;
          Tensor x(dtype, shape, ++turn % 3 == 0 ? 5 : 0);
          fill_mixed(x, static_cast<std::uint64_t>(turn));
          expect_cpu_bits(x, scheme, options, turn % 4 == 0, turn % 5 == 0);
        }
      }
    });
  }
}

TEST_F(CudaFakeQuantize, ScalarsOfNvfp4) {
  Tensor x(DType::bfloat16, {1, 50, 96});
  fill_mixed(x, 5, false);
  for (const bool is_amax : {true, false}) {
    const float value = 0.37f;
    DeviceFloat given(value);
    Tensor wanted(x.dtype(), x.shape()), got = wanted;
    QuantizeOptions options, device_options;
    (is_amax ? options.amax : options.tensor_scale) = &value;
    (is_amax ? device_options.amax : device_options.tensor_scale) = given.address();
    fake_quantize(x.buffer(), Scheme::nvfp4, wanted.buffer(), options);
    DeviceTensor device_x(x), device_out(got);
    fake_quantize(device_x.buffer(), Scheme::nvfp4, device_out.buffer(), device_options);
    device_out.copy_to(got);
    got.for_each([&](auto b, auto r, auto c) {
      ASSERT_EQ(got.bits(b, r, c), wanted.bits(b, r, c)) << (is_amax ? "amax" : "tensor_scale");
    });
  }
}

TEST_F(CudaFakeQuantize, SaysWhatItLacks) {
  Tensor x(DType::bfloat16, {1, 32, 64}), y = x;
  DeviceTensor device_x(x), device_y(y);
  DeviceFloat found;
  const QuantizeOptions squares{
      .block_shape = BlockShape::square, .four_over_six = true, .found_amax = found.address()};
  const auto message = [&](const QuantizeOptions& options) {
    return error_message(
        [&] { fake_quantize(device_x.buffer(), Scheme::nvfp4, device_y.buffer(), options); });
  };
  EXPECT_EQ(message(squares),
            "fake_quantize: square blocks with four_over_six on a CUDA device; call quantize and "
            "dequantize, or leave one of the options");
  EXPECT_NE(message({}).find("fake_quantize: found_amax is null"), std::string::npos);
}

}  // namespace
}  // namespace mxkern
