// tests/support/cuda/hopper_test.h: a test of what gemm does on Hopper, skipped on other GPUs and
// in builds without its kernels.
#pragma once

#include <vector>

#include "cuda/gemm/gemm.h"
#include "mxkern/gemm.h"
#include "tests/support/cuda/stream.h"
#include "tests/support/cuda/operand.h"

namespace mxkern::test {

inline bool has_hopper_products() {
  const CudaGemmCapabilities capabilities = cuda::gemm_capabilities("test", first_cuda_device);
  return capabilities.major == 9 && capabilities.has_hopper_kernels;
}

class HopperTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    capabilities_ = cuda::gemm_capabilities("test", first_cuda_device);
    if (!has_hopper_products()) GTEST_SKIP() << "the device or the build has no Hopper kernels";
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

  using Results = std::vector<std::vector<std::uint8_t>>;

  // The same of one output, or of two, which as many streams compute at the same time, several
  // times each.
  static Results products(const GemmOperand& left, const GemmRightOperand& right,
                          PlainTensor before, const GemmOptions& options, bool on_two_streams) {
    Results results;
    if (!on_two_streams) {
      results.push_back(product(left, right, before, options));
      return results;
    }
    constexpr int calls = 4;
    DevicePlainTensor outs[] = {DevicePlainTensor(before), DevicePlainTensor(before)};
    const std::size_t bytes = gemm_workspace_bytes(left, right, outs[0].view(), options);
    const std::vector<std::uint8_t> nan(bytes + 1, 0xFF);
    DeviceCopy memories[] = {DeviceCopy(nan), DeviceCopy(nan)};
    const OwnedStream streams[2];
    for (int call = 0; call < calls; ++call) {
      for (int i = 0; i < 2; ++i) {
        gemm(left, right, outs[i].view(), options, {memories[i].data(), bytes}, streams[i]);
      }
    }
    for (int i = 0; i < 2; ++i) {
      check_cuda(cudaStreamSynchronize(streams[i]));
      PlainTensor host = before;
      outs[i].copy_to(host);
      results.push_back(host.bytes);
    }
    return results;
  }

  CudaGemmCapabilities capabilities_;
};

}  // namespace mxkern::test
