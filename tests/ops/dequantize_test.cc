// tests/ops/dequantize_test.cc: what dequantize promises, through its public entry.
#include "mxkern/dequantize.h"

#include <gtest/gtest.h>

#include "mxkern/core/error.h"
#include "mxkern/quantize.h"
#include "tests/support/error_message.h"
#include "tests/support/tensor.h"

namespace mxkern {
namespace {

using namespace test;

TEST(Dequantize, ValuesThatASchemeHoldsComeBack) {
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      // Small multiples of the smallest step under the largest value, in every block.
      const SchemeFacts facts = facts_of(scheme);
      Tensor x(DType::float32, {2, 3, 70});
      x.for_each([&](auto b, auto r, auto c) {
        const float steps = static_cast<float>((r + c) % 5) * (c % 2 == 0 ? 1.0f : -1.0f);
        const float value = c % facts.block == 0 ? facts.max_value : steps * facts.min_subnormal;
        x.set(b, r, c, value);
      });
      Quantized q(scheme, x.shape(), ScaleLayout::row_major);
      // Under this tensor scale the block scale of nvfp4 is 1.
      const float tensor_scale = 1.0f;
      QuantizeOptions options;
      if (facts.has_tensor_scale) options.tensor_scale = &tensor_scale;
      quantize(x.buffer(), q.out(), options);
      Tensor back(dtype, x.shape(), 3);
      dequantize(q.out(), back.buffer());
      x.for_each([&](auto b, auto r, auto c) {
        ASSERT_EQ(back.get(b, r, c), x.get(b, r, c))
            << facts.name << " to " << name_of(dtype) << " at [" << b << ", " << r << ", " << c
            << "]";
      });
    }
  }
}

TEST(Dequantize, ANanScaleMakesItsBlockNan) {
  for (const Scheme scheme : all_schemes) {
    const SchemeFacts facts = facts_of(scheme);
    Quantized q(scheme, {1, 1, 2 * facts.block}, ScaleLayout::row_major);
    std::fill(q.codes.data(), q.codes.data() + q.codes.size(), std::uint8_t{0x11});
    q.tensor_scale = 1.0f;
    q.scales.data()[0] = 0x30;
    q.scales.data()[1] = facts.nan_scale;
    for (const DType dtype : all_dtypes) {
      Tensor out(dtype, q.view.shape);
      dequantize(q.out(), out.buffer());
      const std::uint32_t nan = dtype == DType::float32   ? 0x7FC00000u
                                : dtype == DType::float16 ? 0x7E00u
                                                          : 0x7FC0u;
      for (int i = 0; i < 2 * facts.block; ++i) {
        if (i < facts.block) {
          ASSERT_EQ(out.get(0, 0, i), out.get(0, 0, i)) << facts.name << ", element " << i;
        } else {
          ASSERT_EQ(out.bits(0, 0, i), nan) << facts.name << ", element " << i;
        }
      }
    }
  }
}

TEST(Dequantize, MatricesOfTheOutputDoNotOverlap) {
  Quantized q(Scheme::mxfp8_e4m3, {2, 3, 32}, ScaleLayout::row_major);
  std::fill(q.codes.data(), q.codes.data() + q.codes.size(), std::uint8_t{0x38});
  std::fill(q.scales.data(), q.scales.data() + q.scales.size(), std::uint8_t{127});
  std::vector<float> memory(256, -1.0f);
  const auto message = [&](std::int64_t row_stride, std::int64_t batch_stride) {
    const Buffer out{memory.data(), DType::float32, {2, 3, 32}, row_stride, batch_stride, {}};
    return error_message([&] { dequantize(q.out(), out); });
  };
  const auto refused = [](int row_stride, int batch_stride) {
    return "dequantize: out has strides of " + std::to_string(row_stride) + " and " +
           std::to_string(batch_stride) +
           " elements for the shape [2, 3, 32]; expected rows and matrices that do not overlap";
  };
  EXPECT_EQ(message(32, 0), refused(32, 0));
  EXPECT_EQ(message(32, 95), refused(32, 95));
  EXPECT_EQ(message(63, 32), refused(63, 32));
  EXPECT_EQ(memory, std::vector<float>(256, -1.0f));
  const std::string fine = "(nothing was thrown)";
  EXPECT_EQ(message(32, 96), fine);
  EXPECT_EQ(message(40, 120), fine);
  EXPECT_EQ(message(64, 32), fine);  // in the gaps of one another
  EXPECT_EQ(std::count(memory.begin(), memory.begin() + 192, 1.0f), 192);
}

TEST(Dequantize, RefusesWrongArguments) {
  Quantized q(Scheme::mxfp6_e2m3, {1, 4, 40}, ScaleLayout::swizzled);
  Tensor out(DType::float32, {1, 4, 40});
  BlockScaled view = q.out();
  view.shape.columns = 41;
  EXPECT_EQ(error_message([&] { dequantize(view, out.buffer()); }),
            "dequantize: out has shape [1, 4, 40]; expected [1, 4, 41]");
  view = q.out();
  view.codes = nullptr;
  EXPECT_EQ(error_message([&] { dequantize(view, out.buffer()); }),
            "dequantize: q.codes is null; expected memory for 192 bytes");
  view = q.out();
  view.scales = nullptr;
  EXPECT_EQ(error_message([&] { dequantize(view, out.buffer()); }),
            "dequantize: q.scales is null; expected memory for 512 bytes");
  Buffer wrong = out.buffer();
  wrong.data = nullptr;
  EXPECT_EQ(error_message([&] { dequantize(q.out(), wrong); }),
            "dequantize: out has shape [1, 4, 40] but a null pointer; expected memory that holds "
            "it");
  wrong = out.buffer();
  wrong.dtype = static_cast<DType>(7);
  EXPECT_THROW(dequantize(q.out(), wrong), InvalidType);
  EXPECT_EQ(error_message([&] { dequantize(q.out(), wrong); }),
            "dequantize: out has dtype number 7; expected float32, float16 or bfloat16");
}

TEST(Dequantize, RefusesTwoDevices) {
  Quantized q(Scheme::mxfp8_e4m3, {1, 4, 32}, ScaleLayout::row_major);
  Tensor out(DType::float32, {1, 4, 32});
  BlockScaled view = q.out();
  view.device = {DeviceType::cpu, 1};
  EXPECT_EQ(error_message([&] { dequantize(view, out.buffer()); }),
            "dequantize: out is on cpu; expected cpu:1, where the other arguments are");
}

}  // namespace
}  // namespace mxkern
