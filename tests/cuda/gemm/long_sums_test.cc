// tests/cuda/gemm/long_sums_test.cc: sums of both signs, of one sign and of equal elements lose
// what docs/guide/gemm.md says.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cuda/gemm/gemm.h"
#include "mxkern/gemm.h"
#include "mxkern/prepare_operand.h"
#include "tests/support/cuda/operand.h"
#include "tests/support/gemm_reference.h"
#include "tests/support/cuda/hopper_test.h"

namespace mxkern {
namespace {

using namespace test;

Values magnitudes(std::uint64_t seed) {
  return [values = normal_values(seed)](std::int64_t batch, std::int64_t row, std::int64_t k) {
    return std::fabs(values(batch, row, k));
  };
}

// Two operands, the left one plain or quantized, and their product in double precision.
template <class Left>
struct LongSums {
  Left host_a;
  QuantizedOperand host_b;
  PlainTensor host_out;
  Reference wanted;

  LongSums(Left a, QuantizedOperand b)
      : host_a(std::move(a)),
        host_b(std::move(b)),
        host_out(DType::float32, {1, host_a.view.shape.rows, host_b.view.shape.rows}),
        wanted(multiply(host_a, host_b, host_out)) {}

  // What a product in float32 gives on a device of such capabilities.
  PlainTensor run(const GemmOperand& a, const GemmRightOperand& b, GemmPrecision precision,
                  const CudaGemmCapabilities& capabilities) {
    DevicePlainTensor out(host_out);
    const auto plan = plan_gemm_cuda({a, b, out.view(), precision}, capabilities);
    DeviceBytes memory(plan.workspace_bytes);
    cuda::gemm_as(capabilities, a, b, out.view(), {.precision = precision},
                  {memory.data(), plan.workspace_bytes}, {});
    check_cuda(cudaDeviceSynchronize());
    PlainTensor got = host_out;
    out.copy_to(got);
    return got;
  }

  double error(const GemmOperand& a, const GemmRightOperand& b, GemmPrecision precision,
               const CudaGemmCapabilities& capabilities) {
    return relative_error(run(a, b, precision, capabilities), wanted);
  }
};

class CudaLongSums : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped()) own_ = cuda::gemm_capabilities("test", first_cuda_device);
  }
  static bool is_hopper() { return has_hopper_products(); }

  static QuantizedOperand quantized(std::int64_t rows, std::int64_t k, const Values& values) {
    QuantizedOperand operand(Scheme::mxfp8_e4m3, {1, rows, k}, ScaleLayout::row_major);
    operand.quantize(values);
    return operand;
  }

  CudaGemmCapabilities own_;
  const CudaGemmCapabilities ampere_ = capabilities_of("sm_80");
};

TEST_F(CudaLongSums, OfBothSigns) {
  constexpr std::int64_t k = 65536;
  LongSums sums(quantized(24, k, normal_values(1)), quantized(24, k, normal_values(2)));
  DeviceQuantizedOperand a(sums.host_a), b(sums.host_b);
  EXPECT_LE(sums.error(a.view(), b.view(), GemmPrecision::exact, own_), 2e-5);
  EXPECT_LE(sums.error(a.view(), b.view(), GemmPrecision::exact, ampere_), 2e-5);
  if (is_hopper()) {
    EXPECT_LE(sums.error(a.view(), b.view(), GemmPrecision::folded, own_), 5e-4);
  }
}

TEST_F(CudaLongSums, OfOneSign) {
  constexpr std::int64_t k = 16384;
  LongSums sums(quantized(48, k, magnitudes(1)), quantized(48, k, magnitudes(2)));
  DeviceQuantizedOperand a(sums.host_a), b(sums.host_b);
  EXPECT_LE(sums.error(a.view(), b.view(), GemmPrecision::exact, own_), 2e-5);
  EXPECT_LE(sums.error(a.view(), b.view(), GemmPrecision::exact, ampere_), 2e-5);
  if (is_hopper()) {
    EXPECT_LE(sums.error(a.view(), b.view(), GemmPrecision::folded, own_), 7e-4);
  }
}

// Every product of two mantissas of E4M3, by itself: what is cut off of one is cut off of all.
TEST_F(CudaLongSums, OfEqualElements) {
  if (!is_hopper()) GTEST_SKIP() << "the device or the build has no Hopper kernels";
  QuantizedOperand host(Scheme::mxfp8_e4m3, {1, 8, 4096}, ScaleLayout::row_major);
  host.quantize([](std::int64_t, std::int64_t row, std::int64_t) { return 1.0 + row / 8.0; });
  LongSums sums(host, host);
  DeviceQuantizedOperand a(sums.host_a), b(sums.host_b);
  const PlainTensor folded = sums.run(a.view(), b.view(), GemmPrecision::folded, own_);
  const PlainTensor exact = sums.run(a.view(), b.view(), GemmPrecision::exact, own_);
  for (std::int64_t i = 0; i < 8; ++i) {
    for (std::int64_t j = 0; j < 8; ++j) {
      const double wanted = sums.wanted.at(0, i, j).value;
      EXPECT_EQ(exact.value(0, i, j), wanted) << i << ", " << j;
      EXPECT_LE(std::fabs(folded.value(0, i, j) / wanted - 1.0), 1.3e-3) << i << ", " << j;
    }
  }
}

TEST_F(CudaLongSums, OfFewTokensOfOneSign) {
  constexpr std::int64_t k = 16384;
  for (const std::int64_t tokens : {1, 64, 192}) {
    PlainTensor x(DType::bfloat16, {1, tokens, k});
    x.fill(magnitudes(3));
    LongSums sums(std::move(x), quantized(16, k, magnitudes(4)));
    DevicePlainTensor a(sums.host_a);
    DeviceQuantizedOperand b(sums.host_b);
    const BlockScaled& weights = b.view();
    if (usable_prepared_form(PreparedForm::few_tokens, weights.scheme, first_cuda_device) !=
        PreparedForm::few_tokens) {
      GTEST_SKIP() << "the device has no kernels for few tokens";
    }
    const std::size_t bytes =
        prepared_bytes(PreparedForm::few_tokens, weights.scheme, weights.shape);
    DeviceBytes memory(bytes);
    const PreparedOperand ready{PreparedForm::few_tokens, weights, memory.data(), bytes};
    prepare_operand(weights, ready);
    EXPECT_LE(sums.error(a.view(), ready, GemmPrecision::automatic, own_), 2e-5) << tokens;
  }
}

}  // namespace
}  // namespace mxkern
