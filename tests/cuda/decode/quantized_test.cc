// tests/cuda/decode/quantized_test.cc: products of few rows of a quantized left operand and weights
// that were prepared for few tokens, against the product in double precision, row by row.
#include <cmath>
#include <string>
#include <vector>

#include "cuda/gemm/gemm.h"
#include "mxkern/prepare_operand.h"
#include "plan/gemm_cuda.h"
#include "tests/support/cuda/operand.h"
#include "tests/support/cuda/prepared.h"
#include "tests/support/gemm_reference.h"
#include "tests/support/cuda/hopper_test.h"

namespace mxkern {
namespace {

using namespace test;

class CudaDecodeQuantized : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    const PreparedForm form = PreparedForm::few_tokens;
    if (usable_prepared_form(form, Scheme::mxfp4, first_cuda_device) != form) {
      GTEST_SKIP() << "the device has no products of few tokens";
    }
  }
};

// Rows lie up to 80 octaves apart, and those of the weights up to 40.
Values values_of_rows(std::uint64_t seed, int octaves) {
  const Values values = normal_values(seed);
  return [=](std::int64_t batch, std::int64_t row, std::int64_t k) {
    const int exponent = static_cast<int>(row * 7 % (octaves + 1)) - octaves / 2;
    return std::ldexp(values(batch, row, k), exponent);
  };
}

struct Product {
  QuantizedOperand host_a, host_b;
  PlainTensor host_out, host_bias;
  GemmOptions options;
  bool has_bias = false;

  Product(Scheme left, Scheme right, const Shape& shape, std::int64_t n, std::int64_t batch,
          DType dtype, int seed, int octaves = 0)
      : host_a(left, shape, all_scale_layouts[seed % 2]),
        host_b(right, {batch, n, shape.columns}, all_scale_layouts[seed / 2 % 2]),
        host_out(dtype, {shape.batch, shape.rows, n}),
        host_bias(DType::float32, {1, 1, n}) {
    host_a.quantize(values_of_rows(static_cast<std::uint64_t>(seed), octaves));
    host_b.quantize(values_of_rows(static_cast<std::uint64_t>(seed) + 1, octaves / 2));
    host_out.fill(normal_values(static_cast<std::uint64_t>(seed) + 2));
    host_bias.fill(normal_values(static_cast<std::uint64_t>(seed) + 3));
  }

  // Returns the output on the host; the plan has to be what is tested. `runs` of it give the same.
  PlainTensor run(int runs = 1) {
    DeviceQuantizedOperand a(host_a), b(host_b);
    const DevicePrepared ready(PreparedForm::few_tokens, b.view());
    DevicePlainTensor bias(host_bias);
    Buffer bias_view = bias.view();
    if (has_bias) options.bias = &bias_view;
    std::vector<std::uint8_t> first;
    PlainTensor result = host_out;
    for (int i = 0; i < runs; ++i) {
      DevicePlainTensor out(host_out);
      const CudaGemmPlan plan = plan_gemm_cuda({a.view(), ready.operand, out.view(), options},
                                               cuda::gemm_capabilities("test", first_cuda_device));
      EXPECT_EQ(plan.path, CudaGemmPath::few_tokens) << plan.reason;
      DeviceCopy memory(std::vector<std::uint8_t>(plan.workspace_bytes + 256, 0xFF));
      gemm(a.view(), ready.operand, out.view(), options, {memory.data(), plan.workspace_bytes});
      check_cuda(cudaDeviceSynchronize());
      out.copy_to(result);
      if (i == 0) first = result.bytes;
      EXPECT_EQ(result.bytes, first);
    }
    return result;
  }

  Reference wanted() {
    return multiply(host_a, host_b, host_out, options, has_bias ? &host_bias : nullptr);
  }
};

// Of each row, beyond what rounding to the dtype adds.
::testing::AssertionResult rows_are_near(const PlainTensor& out, const Reference& wanted,
                                         double limit) {
  const Shape& shape = wanted.shape;
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      double error = 0.0, size = 0.0, rounding = 0.0;
      for (std::int64_t column = 0; column < shape.columns; ++column) {
        const double want = wanted.at(batch, row, column).value;
        const double difference = out.value(batch, row, column) - want;
        const double rounded = rounding_error(out.view.dtype, want);
        error += difference * difference;
        size += want * want;
        rounding += rounded * rounded;
      }
      if (std::sqrt(error) <= limit * std::sqrt(size) + std::sqrt(rounding)) continue;
      return ::testing::AssertionFailure() << "row " << row << " of batch " << batch
                                           << ": relative error " << std::sqrt(error / size);
    }
  }
  return ::testing::AssertionSuccess();
}

TEST_F(CudaDecodeQuantized, EveryPairOfSchemes) {
  int seed = 0;
  for (const Scheme left : all_schemes) {
    for (const Scheme right : all_schemes) {
      for (const std::int64_t rows : {1, 7, 16, 40, 100}) {
        const DType dtype = all_dtypes[++seed % 3];
        Product product(left, right, {1, rows, 288}, 77, 1, dtype, seed);
        product.options.alpha = seed % 4 == 0 ? -0.375f : 1.0f;
        product.options.beta = seed % 5 == 0 ? 0.5f : 0.0f;
        product.has_bias = seed % 3 == 1;
        const PlainTensor out = product.run();
        ASSERT_TRUE(rows_are_near(out, product.wanted(), 2e-5))
            << name_of(left) << " x " << name_of(right) << " to " << name_of(dtype) << ", " << rows
            << " rows";
      }
    }
  }
}

// Codes, bytes and scales of rows that end anywhere; as many rows as are taken, and more.
TEST_F(CudaDecodeQuantized, Shapes) {
  int seed = 100;
  for (const Scheme left : {Scheme::mxfp8_e4m3, Scheme::nvfp4, Scheme::mxfp6_e2m3}) {
    for (const Shape& shape : {Shape{1, 3, 32}, Shape{1, 17, 33}, Shape{2, 5, 160}, Shape{1, 64, 1},
                               Shape{3, 70, 96}, Shape{1, 300, 512}, Shape{1, 512, 4128}}) {
      for (const std::int64_t batch : {std::int64_t{1}, shape.batch}) {
        const Scheme right = ++seed % 2 == 0 ? Scheme::mxfp4 : Scheme::nvfp4;
        Product product(left, right, shape, 133, batch, DType::float32, seed);
        const PlainTensor out = product.run(2);
        ASSERT_TRUE(rows_are_near(out, product.wanted(), 2e-5))
            << name_of(left) << " [" << shape.batch << ", " << shape.rows << ", " << shape.columns
            << "], " << batch << " matrices of weights";
      }
    }
  }
}

// Powers of two far apart, of rows and of what they are multiplied with.
TEST_F(CudaDecodeQuantized, RowsFarApart) {
  int seed = 200;
  for (const Scheme left : {Scheme::mxfp8_e4m3, Scheme::mxfp8_e5m2, Scheme::mxfp6_e3m2,
                            Scheme::mxfp4, Scheme::mxint8}) {
    for (const Scheme right : {Scheme::mxfp8_e4m3, Scheme::mxfp4, Scheme::mxint8}) {
      for (const std::int64_t rows : {8, 16, 64, 200}) {
        Product product(left, right, {1, rows, 512}, 64, 1, DType::float32, ++seed, 80);
        const PlainTensor out = product.run();
        ASSERT_TRUE(rows_are_near(out, product.wanted(), 2e-5))
            << name_of(left) << " x " << name_of(right) << ", " << rows << " rows";
      }
    }
  }
}

// Their product lies far outside of float32, or is subnormal, where the outputs are not.
TEST_F(CudaDecodeQuantized, TensorScalesFarFromOne) {
  struct Factors {
    float left, right, alpha;
  };
  int seed = 300;
  for (const Factors& f :
       {Factors{1e-38f, 1e38f, 1.0f}, Factors{1e30f, 1e30f, 1e-37f}, Factors{1e-44f, 1e20f, 1e20f},
        Factors{1e-20f, 1e-22f, 1.0f}, Factors{1e20f, 1e20f, 1e-38f}, Factors{2.0f, 3.0f, 0.0f}}) {
    for (const Scheme left : {Scheme::nvfp4, Scheme::mxfp8_e4m3}) {
      for (const std::int64_t rows : {1, 16, 40, 200}) {
        Product product(left, Scheme::nvfp4, {1, rows, 160}, 72, 1, DType::float32, ++seed);
        product.host_a.tensor_scale = left == Scheme::nvfp4 ? f.left : 1.0f;
        product.host_b.tensor_scale = f.right;
        product.options.alpha = left == Scheme::nvfp4 ? f.alpha : f.alpha * f.left;
        const PlainTensor out = product.run();
        ASSERT_TRUE(rows_are_near(out, product.wanted(), 2e-6))
            << f.left << " * " << f.right << " * " << f.alpha << ", " << name_of(left) << ", "
            << rows << " rows";
      }
    }
  }
}

// NaN stays in the row of a, or in the column of b, that it was in.
TEST_F(CudaDecodeQuantized, NanStays) {
  for (const Scheme left : all_schemes) {
    for (const std::int64_t rows : {5, 16, 50}) {
      Product product(left, Scheme::mxfp4, {1, rows, 256}, 64, 1, DType::float32, 300);
      const auto nan = static_cast<std::uint8_t>(left == Scheme::nvfp4 ? 0x7F : 0xFF);
      product.host_a.scale(0, 2, 1) = nan;
      product.host_b.scale(0, 9, 3) = 0xFF;
      const PlainTensor out = product.run();
      const Reference wanted = product.wanted();
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t column = 0; column < 64; ++column) {
          const bool is_nan = row == 2 || column == 9;
          ASSERT_EQ(std::isnan(out.value(0, row, column)), is_nan)
              << name_of(left) << ", row " << row << ", column " << column;
          if (is_nan) continue;
          const Expected& want = wanted.at(0, row, column);
          ASSERT_LE(std::fabs(out.value(0, row, column) - want.value), 4 * want.tolerance);
        }
      }
    }
  }
}

// An operand that was expanded ahead is not expanded again, and gives the same.
TEST_F(CudaDecodeQuantized, LeftOperandsExpandedAhead) {
  for (const Scheme left : {Scheme::mxfp8_e4m3, Scheme::nvfp4}) {
    Product product(left, Scheme::mxfp4, {1, 33, 416}, 90, 1, DType::bfloat16, 400);
    const PlainTensor wanted = product.run();
    DeviceQuantizedOperand a(product.host_a), b(product.host_b);
    const DevicePrepared left_ready(PreparedForm::expanded, a.view());
    const DevicePrepared right_ready(PreparedForm::few_tokens, b.view());
    DevicePlainTensor out(product.host_out);
    const CudaGemmPlan plan =
        plan_gemm_cuda({left_ready.operand, right_ready.operand, out.view(), GemmOptions{}},
                       cuda::gemm_capabilities("test", first_cuda_device));
    EXPECT_EQ(plan.path, CudaGemmPath::few_tokens);
    EXPECT_EQ(plan.workspace_bytes, 0u);
    gemm(left_ready.operand, right_ready.operand, out.view(), {}, {});
    check_cuda(cudaDeviceSynchronize());
    PlainTensor got = product.host_out;
    out.copy_to(got);
    EXPECT_EQ(got.bytes, wanted.bytes) << name_of(left);
  }
}

}  // namespace
}  // namespace mxkern
