// tests/cuda/decode/right_is_complete_test.cu: weights that a kernel ahead of their product writes,
// which lets what is behind it start before it does so.
#include <gtest/gtest.h>

#include <vector>

#include "mxkern/gemm.h"
#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/prepare_operand.h"
#include "tests/support/cuda/hopper_test.h"

namespace mxkern {
namespace {

using namespace test;

__global__ void write_late(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
  kernels::let_dependents_start();
  for (int i = 0; i < 200; ++i) __nanosleep(1000);
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < bytes; i += step) {
    to[i] = from[i];
  }
}

class CudaRightIsComplete : public HopperTest {};

TEST_F(CudaRightIsComplete, ProductsWaitWhereItIsNot) {
  QuantizedOperand host_b(Scheme::mxfp4, {1, 2048, 2048}, ScaleLayout::row_major);
  host_b.quantize(normal_values(1));
  DeviceQuantizedOperand b(host_b);
  const std::size_t size = prepared_bytes(PreparedForm::few_tokens, Scheme::mxfp4, b.view().shape);
  DeviceBytes complete(size), late(size);
  prepare_operand(b.view(), {PreparedForm::few_tokens, b.view(), complete.data(), size});
  for (const std::int64_t rows : {1, 16, 64, 256}) {
    PlainTensor host_a(DType::bfloat16, {1, rows, 2048}), out(DType::float32, {1, rows, 2048});
    host_a.fill(normal_values(static_cast<std::uint64_t>(rows)));
    DevicePlainTensor a(host_a);
    DevicePlainTensor first(out), second(out);
    PreparedOperand right{PreparedForm::few_tokens, b.view(), complete.data(), size};
    const std::size_t bytes = gemm_workspace_bytes(a.view(), right, first.view());
    DeviceBytes memory(bytes);
    gemm(a.view(), right, first.view(), {}, {memory.data(), bytes});
    first.copy_to(out);
    const std::vector<std::uint8_t> wanted = out.bytes;
    right.data = late.data();
    for (int turn = 0; turn < 5; ++turn) {
      check_cuda(cudaMemset(late.data(), 0, size));
      check_cuda(cudaDeviceSynchronize());
      write_late<<<16, 256>>>(late.data(), complete.data(), size);
      gemm(a.view(), right, second.view(), {.right_is_complete = false}, {memory.data(), bytes});
      second.copy_to(out);
      EXPECT_EQ(out.bytes, wanted) << rows << " rows";
    }
  }
}

}  // namespace
}  // namespace mxkern
