// tests/cuda/runtime/errors_test.cc: bad arguments and failed launches are reported by the call
// that caused them, and the device stays usable.
#include <functional>
#include <optional>
#include <string>

#include "mxkern/core/error.h"
#include "mxkern/mxkern.h"
#include "tests/support/compare_quantized.h"
#include "tests/support/cuda/memory.h"
#include "tests/support/error_message.h"

namespace mxkern {
namespace {

using namespace test;

// One call with good arguments, for a test to spoil.
class CudaErrors : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    fill_mixed(host_x_, 1);
    x_.emplace(host_x_);
    out_.emplace(host_out_);
    options_.found_amax = out_->found_amax();
  }

  // The arguments still give the right bytes: no earlier failure has left anything behind.
  void expect_usable() {
    Quantized wanted(Scheme::nvfp4, host_x_.shape(), ScaleLayout::row_major);
    quantize(host_x_.buffer(), wanted.out());
    ASSERT_NO_THROW(quantize(x_->buffer(), out_->view(), options_));
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_TRUE(same_bytes(out_->on_host(), wanted));
  }

  template <class Failure>
  void expect_failure(const std::string& says, const std::function<void()>& call) {
    test::expect_failure<Failure>(says, call);
    expect_usable();
  }

  Tensor host_x_{DType::bfloat16, {1, 40, 96}};
  Quantized host_out_{Scheme::nvfp4, {1, 40, 96}, ScaleLayout::row_major};
  std::optional<DeviceTensor> x_;
  std::optional<DeviceQuantized> out_;
  QuantizeOptions options_;
};

TEST_F(CudaErrors, HostMemoryAsDeviceMemory) {
  const auto said = [](const std::string& name) {
    return "quantize: " + name + " is said to lie on a CUDA device but points to host memory";
  };
  const auto run = [&](const Buffer& x, const BlockScaled& out, const QuantizeOptions& options) {
    return [=] { quantize(x, out, options); };
  };
  Buffer x = host_x_.buffer();
  x.device = first_cuda_device;
  expect_failure<InvalidArgument>(said("x"), run(x, out_->view(), options_));

  BlockScaled out = out_->view();
  out.codes = host_out_.codes.data();
  expect_failure<InvalidArgument>(said("out.codes"), run(x_->buffer(), out, options_));
  out = out_->view();
  out.scales = host_out_.scales.data();
  expect_failure<InvalidArgument>(said("out.scales"), run(x_->buffer(), out, options_));
  out = out_->view();
  out.tensor_scale = &host_out_.tensor_scale;
  expect_failure<InvalidArgument>(said("out.tensor_scale"), run(x_->buffer(), out, options_));

  const float amax = 6.0f;
  QuantizeOptions options = options_;
  options.amax = &amax;
  expect_failure<InvalidArgument>(said("amax"), run(x_->buffer(), out_->view(), options));
  options = options_;
  options.tensor_scale = &amax;
  expect_failure<InvalidArgument>(said("tensor_scale"), run(x_->buffer(), out_->view(), options));
}

TEST_F(CudaErrors, HostMemoryInTheOtherOperations) {
  float amax = 0.0f;
  expect_failure<InvalidArgument>("tensor_amax: amax", [&] { tensor_amax(x_->buffer(), &amax); });
  Buffer out = host_x_.buffer();
  out.device = first_cuda_device;
  expect_failure<InvalidArgument>("dequantize: out", [&] { dequantize(out_->view(), out); });
  expect_failure<InvalidArgument>("random_hadamard: out",
                                  [&] { random_hadamard(x_->buffer(), out, {16}); });
  std::uint8_t scales[512] = {};
  expect_failure<InvalidArgument>("swizzle_scales: the source", [&] {
    swizzle_scales(scales, out_->view().scales, 1, 4, 4, first_cuda_device);
  });
}

TEST_F(CudaErrors, NowhereToKeepTheAmax) {
  QuantizeOptions options = options_;
  options.found_amax = nullptr;
  expect_failure<InvalidArgument>("quantize: found_amax is null",
                                  [&] { quantize(x_->buffer(), out_->view(), options); });
}

TEST_F(CudaErrors, NothingIsWrittenWhereOneDirectionIsRefused) {
  Quantized host_columns(Scheme::nvfp4, host_x_.shape().transposed(), ScaleLayout::row_major);
  DeviceQuantized columns(host_columns);
  DeviceFloat kept(-1.0f);
  QuantizeOptions of_rows = options_, of_columns = options_;
  of_rows.found_amax = kept.address();
  of_columns.found_amax = nullptr;
  expect_failure<InvalidArgument>("quantize_both: found_amax is null", [&] {
    quantize_both(x_->buffer(), out_->view(), columns.view(), of_rows, of_columns);
  });
  EXPECT_EQ(kept.value(), -1.0f);
}

TEST_F(CudaErrors, DevicesThatAreNotThereOrMixed) {
  Buffer x = x_->buffer();
  BlockScaled out = out_->view();
  x.device.index = out.device.index = 99;
  expect_failure<Unsupported>("select the array's device", [&] { quantize(x, out, options_); });
  expect_failure<InvalidArgument>("quantize: out is on cuda:99; expected cuda:0",
                                  [&] { quantize(x_->buffer(), out, options_); });
  out = out_->view();
  out.device = {};
  expect_failure<InvalidArgument>("quantize: out is on cpu; expected cuda:0",
                                  [&] { quantize(x_->buffer(), out, options_); });
}

TEST_F(CudaErrors, SquareBlocksOfATransform) {
  QuantizeOptions options = options_;
  options.block_shape = BlockShape::square;
  options.hadamard.size = 16;
  expect_failure<InvalidArgument>("square blocks with a Hadamard transform",
                                  [&] { quantize(x_->buffer(), out_->view(), options); });
}

// A launch into the legacy stream while another stream is captured is refused by the runtime.
TEST_F(CudaErrors, FailedLaunch) {
  cudaStream_t captured;
  check_cuda(cudaStreamCreate(&captured));
  QuantizeOptions options = options_;
  DeviceFloat amax(6.0f);
  options.amax = amax.address();
  check_cuda(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
  EXPECT_THROW(
      {
        try {
          quantize(x_->buffer(), out_->view(), options);
        } catch (const Unsupported& failure) {
          EXPECT_NE(std::string(failure.what()).find("quantize: CUDA failed to launch a kernel"),
                    std::string::npos)
              << failure.what();
          throw;
        }
      },
      Unsupported);
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(captured, &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaGetLastError();
  check_cuda(cudaStreamDestroy(captured));
  expect_usable();
}

TEST_F(CudaErrors, StreamOfAnotherDevice) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "there is one CUDA device";
  cudaStream_t other;
  check_cuda(cudaSetDevice(1));
  check_cuda(cudaStreamCreate(&other));
  check_cuda(cudaSetDevice(0));
  DeviceFloat amax(6.0f);
  QuantizeOptions options = options_;
  options.amax = amax.address();
  expect_failure<InvalidArgument>(
      "quantize: stream is one of cuda:1 but the arrays lie on cuda:0",
      [&] { quantize(x_->buffer(), out_->view(), options, Stream{other}); });
  check_cuda(cudaStreamDestroy(other));
}

TEST_F(CudaErrors, MemoryOfAnotherDevice) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "there is one CUDA device";
  check_cuda(cudaSetDevice(1));
  DeviceTensor elsewhere(host_x_);  // says that it is on the first device
  check_cuda(cudaSetDevice(0));
  expect_failure<InvalidArgument>("x is said to lie on cuda:0 but points to memory of cuda:1",
                                  [&] { quantize(elsewhere.buffer(), out_->view(), options_); });
}

}  // namespace
}  // namespace mxkern
