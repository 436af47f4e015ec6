// tests/cuda/gemm/hopper/rounding_test.cc: outputs of the Hopper product are rounded once.
#include <cmath>
#include <memory>

#include "tests/support/cuda/hopper_product.h"

namespace mxkern {
namespace {

using namespace test;
using Case = RowScaledCase;
using MultiplyRounding = MultiplySm90;

// Whichever way it is worked out: by powers of two alone, in float32, or where exponents are
// extreme.
TEST_F(MultiplyRounding, BFloat16OutputsAreRoundedOnce) {
  int processors = 0;
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  for (const std::int64_t n : {std::int64_t{136}, std::int64_t{256} * processors}) {
    for (const CoreElement left : {CoreElement::e4m3, CoreElement::e5m2}) {
      for (const int exponents : {0, 6, 30, 31, 45, 70}) {
        for (const float alpha : {1.0f, -0.25f, 0x1p20f, 0.7f}) {
          Case c{.left = left, .m = 129, .n = n, .k = 96, .exponents = exponents, .alpha = alpha};
          Product exact(c);
          exact.run();
          c.dtype = DType::bfloat16;
          Product rounded(c);
          rounded.run();
          rounded.out.for_each([&](std::int64_t b, std::int64_t i, std::int64_t j) {
            if (HasFatalFailure()) return;
            const float wanted = to_float(from_float<bfloat16>(exact.out.get(b, i, j)));
            ASSERT_EQ(bits_of(rounded.out.get(b, i, j)), bits_of(wanted))
                << c << " at " << i << ", " << j << ": exponents " << exponents << ", alpha "
                << alpha;
          });
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

void scale_elements(RowScaledOperand& x, int power) {
  for (std::int64_t r = 0; r < x.shape().rows; ++r) {
    for (std::int64_t c = 0; c < x.shape().columns; ++c) {
      const auto value = static_cast<float>(std::ldexp(x.get(0, r, c, 0), power));
      x.set(0, r, c, 0, from_float<bfloat16>(value).bits);
    }
  }
}

// Sums of bfloat16 elements are rounded before they are scaled if none of a warp's is small or zero
// and all exponents allow it.
TEST_F(MultiplyRounding, SumsOfBFloat16AreRoundedOnce) {
  int processors = 0;
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  for (const std::int64_t n : {std::int64_t{136}, std::int64_t{256} * processors}) {
    for (const int power : {-40, -3, 3, 14}) {
      for (const int shift : {-45, -15, 0, 15}) {
        Case c{.left = CoreElement::bfloat16, .right = CoreElement::bfloat16, .m = 129, .n = n};
        c.k = 96;
        c.exponents = 15;
        const auto run = [&](DType dtype) {
          c.dtype = dtype;
          auto product = std::make_unique<Product>(c);
          scale_elements(product->left, power);
          scale_elements(product->right, power);
          for (auto& exponent : product->left.exponents()) exponent += shift;
          for (auto& exponent : product->right.exponents()) exponent += shift;
          for (std::int64_t k = 0; k < c.k; ++k) product->left.set(0, 40, k, 0, 0);
          product->run();
          return product;
        };
        const auto exact = run(DType::float32), rounded = run(DType::bfloat16);
        rounded->out.for_each([&](std::int64_t b, std::int64_t i, std::int64_t j) {
          if (HasFatalFailure()) return;
          const float wanted = to_float(from_float<bfloat16>(exact->out.get(b, i, j)));
          ASSERT_EQ(bits_of(rounded->out.get(b, i, j)), bits_of(wanted))
              << i << ", " << j << ": elements times 2^" << power << ", exponents plus " << shift;
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace mxkern
