// tests/cuda/gemm/hopper/parts_of_sums_test.cc: float32 outputs of long sums, which are computed in
// parts of K.
#include <cmath>
#include <string>

#include "cuda/gemm/gemm.h"
#include "mxkern/core/philox.h"
#include "mxkern/gemm.h"
#include "tests/support/cuda/operand.h"
#include "tests/support/gemm_reference.h"

namespace mxkern {
namespace {

using namespace test;

// Elements far apart, of which tensor cores cut off most: one sum of 16384 such products loses
// 1.9e-5, and of more in proportion.
float far_apart(std::int64_t row, std::int64_t column) {
  const std::uint32_t mixed =
      philox4x32(7, static_cast<std::uint64_t>(column), static_cast<std::uint64_t>(row)).lane[0];
  const int exponent = static_cast<int>(mixed >> 28) - 8;
  const float value = 1.0f + static_cast<float>(mixed >> 5 & 0xFFFF) / 65536.0f;
  return std::ldexp((mixed & 1) != 0 ? value : -value, exponent);
}

class CudaPartsOfSums : public CudaTest {
 protected:
  static constexpr std::int64_t k = 2 * 8192 + 3600, m = 70, n = 96;

  static QuantizedOperand operand(Scheme scheme, std::int64_t rows, std::int64_t salt) {
    QuantizedOperand made(scheme, {1, rows, k}, ScaleLayout::row_major);
    made.quantize([=](std::int64_t, std::int64_t row, std::int64_t column) {
      return far_apart(row + salt, column);
    });
    return made;
  }

  // Of the product by what a device of an architecture can do.
  template <class Left, class DeviceLeft>
  static void expect_exact(Left& host_a, DeviceLeft& a, Scheme scheme, const char* architecture) {
    QuantizedOperand host_b = operand(scheme, n, 1000);
    DeviceQuantizedOperand b(host_b);
    PlainTensor before(DType::float32, {1, m, n}), host_bias(DType::float32, {1, 1, n});
    before.fill(
        [](std::int64_t, std::int64_t row, std::int64_t column) { return far_apart(row, column); });
    host_bias.fill(
        [](std::int64_t, std::int64_t, std::int64_t column) { return far_apart(column, 5); });
    DevicePlainTensor out(before), bias(host_bias);
    const Buffer bias_view = bias.view();
    const GemmOptions options{.alpha = 0.5f, .beta = -2.0f, .bias = &bias_view};
    const CudaGemmCapabilities capabilities =
        architecture == nullptr ? cuda::gemm_capabilities("test", first_cuda_device)
                                : capabilities_of(architecture);
    const CudaGemmPlan plan =
        plan_gemm_cuda({a.view(), b.view(), out.view(), GemmPrecision::automatic}, capabilities);
    ASSERT_EQ(plan.sums, 3);
    DeviceBytes memory(plan.workspace_bytes);
    cuda::gemm_as(capabilities, a.view(), b.view(), out.view(), options,
                  {memory.data(), plan.workspace_bytes}, {});
    check_cuda(cudaDeviceSynchronize());
    const Reference wanted = multiply(host_a, host_b, before, options, &host_bias);
    PlainTensor got = before;
    out.copy_to(got);
    EXPECT_LE(relative_error(got, wanted), 2e-5) << name_of(scheme);
  }
};

TEST_F(CudaPartsOfSums, OfCodes) {
  for (const Scheme scheme : {Scheme::mxfp8_e4m3, Scheme::mxfp8_e5m2, Scheme::nvfp4}) {
    QuantizedOperand host_a = operand(Scheme::mxfp8_e4m3, m, 0);
    DeviceQuantizedOperand a(host_a);
    expect_exact(host_a, a, scheme, nullptr);
    expect_exact(host_a, a, scheme, "sm_80");
  }
}

TEST_F(CudaPartsOfSums, OfPlainRows) {
  for (const DType dtype : all_dtypes) {
    PlainTensor host_a(dtype, {1, m, k});
    host_a.fill(
        [](std::int64_t, std::int64_t row, std::int64_t column) { return far_apart(row, column); });
    DevicePlainTensor a(host_a);
    expect_exact(host_a, a, Scheme::mxfp8_e4m3, nullptr);
    expect_exact(host_a, a, Scheme::mxfp8_e4m3, "sm_80");
  }
}

}  // namespace
}  // namespace mxkern
