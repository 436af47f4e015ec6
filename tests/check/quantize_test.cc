// tests/check/quantize_test.cc: options and scalars that no quantization takes, or reads.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "mxkern/quantize.h"
#include "tests/support/error_message.h"
#include "tests/support/tensor.h"

namespace mxkern {
namespace {

using namespace test;

TEST(QuantizeArguments, RefusesOptionsThatNoEnumerationHas) {
  Tensor x(DType::float32, {1, 4, 64});
  Quantized q(Scheme::mxfp4, x.shape(), ScaleLayout::row_major);
  const auto message = [&](const QuantizeOptions& options) {
    return error_message([&] { quantize(x.buffer(), q.out(), options); });
  };
  EXPECT_EQ(message({.rounding = static_cast<Rounding>(2)}),
            "quantize: rounding number 2; expected nearest or stochastic");
  EXPECT_EQ(message({.block_shape = static_cast<BlockShape>(2)}),
            "quantize: block shape number 2; expected row or square");
  EXPECT_EQ(message({.block_shape = BlockShape::square, .hadamard = {.size = 32}}),
            "quantize: square blocks with a Hadamard transform; expected one of them, because a "
            "transform along one axis leaves no square that both directions share; use "
            "block_shape row");
}

TEST(QuantizeArguments, RefusesMisalignedScalars) {
  Tensor x(DType::float32, {1, 4, 64});
  Quantized q(Scheme::nvfp4, x.shape(), ScaleLayout::row_major);
  alignas(8) const std::uint8_t bytes[16] = {};
  const auto* odd = reinterpret_cast<const float*>(bytes + 2);
  EXPECT_EQ(error_message([&] { quantize(x.buffer(), q.out(), {.amax = odd}); }),
            "quantize: amax is misaligned; expected an address that is a multiple of 4 bytes");
  EXPECT_EQ(error_message([&] { tensor_amax(x.buffer(), nullptr); }),
            "tensor_amax: amax is null; expected a float32 to write to");
}

#if !defined(MXKERN_HAS_CUDA)
// Scalars of another device are nothing to read.
TEST(QuantizeArguments, ScalarsOfADeviceAreNotRead) {
  Tensor x(DType::float32, {1, 1, 32});
  Quantized q(Scheme::nvfp4, x.shape(), ScaleLayout::row_major);
  Buffer source = x.buffer();
  BlockScaled out = q.out();
  source.device = out.device = {DeviceType::cuda, 0};
  const float negative = -1.0f;
  EXPECT_NE(error_message([&] {
              quantize(source, out, {.amax = &negative});
            }).find("mxkern was built without CUDA"),
            std::string::npos);
}
#endif

}  // namespace
}  // namespace mxkern
