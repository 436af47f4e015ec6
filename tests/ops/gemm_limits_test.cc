// tests/ops/gemm_limits_test.cc: products at the ends of float32, and of scales that are none.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "mxkern/gemm.h"
#include "tests/support/tensor.h"

namespace mxkern {
namespace {

using namespace test;

void multiply(const GemmOperand& a, const BlockScaled& b, const Buffer& out,
              const GemmOptions& options = {}) {
  std::vector<std::byte> memory(gemm_workspace_bytes(a, b, out, options) + 64);
  void* data = memory.data();
  std::size_t space = memory.size();
  std::align(64, 0, data, space);
  gemm(a, b, out, options, {data, space});
}

// A row's largest scale is one of its blocks, whatever lies in the padding of swizzled scales.
TEST(GemmLimits, PaddingOfSwizzledScalesIsNoScale) {
  Quantized a(Scheme::mxfp8_e4m3, {1, 1, 32}, ScaleLayout::swizzled), b = a;
  for (Quantized* q : {&a, &b}) {
    std::fill_n(q->codes.data(), 32, std::uint8_t{0x38});
    std::fill_n(q->scales.data(), 512, std::uint8_t{254});
    q->scales.data()[0] = 127;
  }
  float out = -1.0f;
  multiply(a.out(), b.out(), Buffer::dense(&out, DType::float32, {1, 1, 1}));
  EXPECT_EQ(out, 32.0f);
}

// Powers of two far beyond float32: nothing stays nothing, and the rest is Inf.
TEST(GemmLimits, PowersBeyondFloat32) {
  for (const std::uint8_t codes : {0x00, 0x22}) {
    Quantized a(Scheme::nvfp4, {1, 1, 16}, ScaleLayout::row_major), b = a;
    for (Quantized* q : {&a, &b}) {
      std::fill_n(q->codes.data(), 8, codes);
      q->scales.data()[0] = 0x38;
      q->tensor_scale = 0x1p127f;
    }
    for (const float alpha : {1.0f, 2.0f, 4.0f, 0x1p100f}) {
      float out = -1.0f;
      multiply(a.out(), b.out(), Buffer::dense(&out, DType::float32, {1, 1, 1}), {.alpha = alpha});
      EXPECT_EQ(out, codes == 0 ? 0.0f : std::numeric_limits<float>::infinity()) << alpha;
    }
  }
}

// Inf - Inf: a NaN that processors make with a sign of their own.
TEST(GemmLimits, EveryNanIsTheSame) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  Quantized b(Scheme::mxfp8_e4m3, {1, 1, 32}, ScaleLayout::row_major);
  std::fill_n(b.codes.data(), 32, std::uint8_t{0x38});
  b.scales.data()[0] = 127;
  Tensor a(DType::float32, {1, 1, 32});
  a.for_each([&](auto i, auto r, auto c) {
    a.set(i, r, c, c == 3 ? infinity : c == 7 ? -infinity : 1.0f);
  });
  for (const DType dtype : all_dtypes) {
    Tensor out(dtype, {1, 1, 1});
    multiply(a.buffer(), b.out(), out.buffer());
    EXPECT_EQ(out.bits(0, 0, 0), dtype == DType::float32   ? 0x7FC00000u
                                 : dtype == DType::float16 ? 0x7E00u
                                                           : 0x7FC0u);
  }
}

}  // namespace
}  // namespace mxkern
