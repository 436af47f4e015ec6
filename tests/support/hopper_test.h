// tests/support/hopper_test.h: a test of what gemm does on Hopper, skipped on other GPUs and in
// builds without its kernels.
#pragma once

#include <vector>

#include "cuda/gemm.h"
#include "mxkern/gemm.h"
#include "tests/support/device_operand.h"

namespace mxkern::test {

class HopperTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    capabilities_ = cuda::gemm_capabilities(first_cuda_device);
    if (capabilities_.major != 9 || !capabilities_.has_hopper_kernels) {
      GTEST_SKIP() << "the device or the build has no Hopper kernels";
    }
  }

  // The bytes of an output that held `before`. The working memory holds NaN.
  static std::vector<std::uint8_t> product(const GemmOperand& left, const GemmRightOperand& right,
                                           PlainTensor before, const GemmOptions& options) {
    DevicePlainTensor out(before);
    const std::size_t bytes = gemm_workspace_bytes(left, right, out.view(), options);
    DeviceCopy memory(std::vector<std::uint8_t>(bytes + 1, 0xFF));
    gemm(left, right, out.view(), options, {memory.data(), bytes});
    check_cuda(cudaDeviceSynchronize());
    out.copy_to(before);
    return before.bytes;
  }

  CudaGemmCapabilities capabilities_;
};

}  // namespace mxkern::test
