// tests/cpu/quantize/dequantize_test.cc: every instruction set against a plain loop, byte for byte.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/expect_reference_values.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using namespace test;

TEST(CpuDequantize, AnyBytesGiveTheValuesOfTheReference) {
  std::uint64_t seed = 0;
  for (const Scheme scheme : all_schemes) {
    const int block = facts_of(scheme).block;
    for (const DType dtype : all_dtypes) {
      for (const int columns : {0, 1, 2, block - 1, block, block + 1, 63, 129, 2500}) {
        for (const ScaleLayout layout : all_scale_layouts) {
          Quantized q = random_bytes(scheme, {2, 5, columns}, layout, 0.375f, ++seed);
          expect_reference_values(q, dtype);
          expect_reference_values(q, dtype, 3);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(CpuDequantize, SpecialTensorScales) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float scale : {0.0f, -0.0f, -1.5f, infinity, std::nanf(""), 0x1p-149f, 0x1.8p127f}) {
    for (const DType dtype : all_dtypes) {
      Quantized q = random_bytes(Scheme::nvfp4, {1, 3, 2500}, ScaleLayout::row_major, scale, 5);
      expect_reference_values(q, dtype);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CpuDequantize, EveryCodeUnderEveryScale) {
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      // One row a scale; each row has every byte among its codes.
      Quantized q = random_bytes(scheme, {1, 256, 512}, ScaleLayout::row_major, 1.5f, 1);
      const std::int64_t row_bytes = q.codes.size() / 256;
      for (std::int64_t i = 0; i < q.codes.size(); ++i)
        q.codes.data()[i] = static_cast<std::uint8_t>(i % row_bytes);
      for (std::int64_t i = 0; i < q.scales.size(); ++i)
        q.scales.data()[i] = static_cast<std::uint8_t>(i / (q.scales.size() / 256));
      expect_reference_values(q, dtype);
      if (HasFatalFailure()) return;
    }
  }
}

// Enough of them to be written past the caches.
TEST(CpuDequantize, ManyElementsGiveTheValuesOfTheReference) {
  Quantized q = random_bytes(Scheme::mxfp8_e4m3, {1, 700, 3001}, ScaleLayout::row_major, 1.0f, 3);
  expect_reference_values(q, DType::float32);
  Quantized one_line =
      random_bytes(Scheme::nvfp4, {1, 2100, 2048}, ScaleLayout::row_major, 0.5f, 4);
  expect_reference_values(one_line, DType::bfloat16);
}

TEST(CpuDequantize, AnyTensorScale) {
  const std::uint32_t scales[] = {0u,          1u,          0x00800000u, 0x7F7FFFFFu, 0x7F800000u,
                                  0x7FC00000u, 0xFF812345u, 0xC0000000u, 0x33333333u};
  for (const std::uint32_t bits : scales) {
    for (const DType dtype : all_dtypes) {
      Quantized q =
          random_bytes(Scheme::nvfp4, {1, 3, 100}, ScaleLayout::swizzled, float_of(bits), bits);
      expect_reference_values(q, dtype);
      if (HasFatalFailure()) FAIL() << show_bits(bits);
    }
  }
}

TEST(CpuDequantize, LargeTensorsGiveTheValuesOfTheReference) {
  for (const Scheme scheme : {Scheme::mxfp8_e4m3, Scheme::mxfp6_e2m3, Scheme::nvfp4}) {
    for (const Shape& shape : {Shape{1, 300, 1000}, Shape{1, 2, 140001}, Shape{1, 90000, 3}}) {
      Quantized q = random_bytes(scheme, shape, ScaleLayout::swizzled, 2.0f, 9);
      expect_reference_values(q, DType::bfloat16);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace mxkern
