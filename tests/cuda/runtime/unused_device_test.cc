// tests/cuda/runtime/unused_device_test.cc: work on the second device leaves the first one alone,
// which gets no context that would take its memory. A test of its own, as no other may have used
// that device in the process. Skipped where there is one device.
#include <cuda.h>

#include <functional>
#include <thread>

#include "mxkern/mxkern.h"
#include "tests/support/compare_quantized.h"
#include "tests/support/cuda/memory.h"

namespace mxkern {
namespace {

using namespace test;

bool has_context(int device) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  check_cuda(cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &address, 12000,
                                              cudaEnableDefault, &found));
  const auto state = reinterpret_cast<decltype(&cuDevicePrimaryCtxGetState)>(address);
  unsigned flags = 0;
  int is_active = -1;
  EXPECT_EQ(state(device, &flags, &is_active), CUDA_SUCCESS);
  return is_active != 0;
}

class CudaUnusedDevice : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && cuda_device_count() < 2) GTEST_SKIP() << "there is one CUDA device";
  }

  // Calls work in a thread in which no device was chosen, so that the first one is current.
  static void run(const char* name, const std::function<void()>& work) {
    SCOPED_TRACE(name);
    std::thread([&] {
      EXPECT_NO_THROW(work());
      EXPECT_FALSE(has_context(0));
      int current = -1;
      check_cuda(cudaGetDevice(&current));
      EXPECT_EQ(current, 0);
    }).join();
    EXPECT_FALSE(has_context(0));
  }
};

TEST_F(CudaUnusedDevice, GetsNoContext) {
  constexpr Shape shape{1, 320, 416}, output{1, 320, 320};
  Tensor host_x(DType::bfloat16, shape), host_y(DType::bfloat16, shape);
  Tensor host_product(DType::float32, output);
  fill_mixed(host_x, 5, false);
  Quantized rows(Scheme::nvfp4, shape, ScaleLayout::row_major);
  Quantized columns(Scheme::nvfp4, shape.transposed(), ScaleLayout::swizzled);
  check_cuda(cudaSetDevice(1));
  DeviceTensor x(host_x, false, second_cuda_device), y(host_y, false, second_cuda_device);
  DeviceTensor product(host_product, false, second_cuda_device);
  DeviceQuantized q(rows, false, second_cuda_device), t(columns, false, second_cuda_device);
  DeviceFloat amax;
  ASSERT_TRUE(has_context(1));
  ASSERT_FALSE(has_context(0)) << "the test itself uses the first device";

  run("tensor_amax", [&] { tensor_amax(x.buffer(), amax.address()); });
  QuantizeOptions of_rows, of_columns;
  of_rows.found_amax = q.found_amax();
  of_columns.found_amax = t.found_amax();
  run("quantize_both", [&] { quantize_both(x.buffer(), q.view(), t.view(), of_rows, of_columns); });
  run("dequantize", [&] { dequantize(q.view(), y.buffer()); });
  run("random_hadamard", [&] { random_hadamard(x.buffer(), y.buffer(), {16}); });
  std::size_t size = 0;
  run("gemm_workspace_bytes",
      [&] { size = gemm_workspace_bytes(q.view(), q.view(), product.buffer()); });
  DeviceBytes memory(size);
  run("gemm", [&] { gemm(q.view(), q.view(), product.buffer(), {}, {memory.data(), size}); });
  check_cuda(cudaDeviceSynchronize());

  // And what they did on the second one is right.
  Quantized want(Scheme::nvfp4, shape, ScaleLayout::row_major);
  quantize(host_x.buffer(), want.out());
  EXPECT_TRUE(same_bytes(q.on_host(), want));
}

}  // namespace
}  // namespace mxkern
