// tests/cuda/runtime/info_test.cc: a library built with CUDA on a machine with or without a device.
#include "mxkern/core/error.h"
#include "mxkern/mxkern.h"
#include "tests/support/cuda/memory.h"

namespace mxkern {
namespace {

using namespace test;

TEST(CudaInfo, SaysWhatThereIs) {
  const Info found = info();
  EXPECT_TRUE(found.built_with_cuda);
  EXPECT_EQ(static_cast<int>(found.devices.size()), cuda_device_count());
  const char* says = cuda_device_count() > 0 ? "runtime " : "no device: ";
  EXPECT_EQ(found.cuda.rfind(says, 0), 0u) << found.cuda;
}

TEST(CudaInfo, WithoutADeviceTheCpuServesAndCudaCallsFail) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "there is a CUDA device";
  Tensor x(DType::float32, {1, 4, 64});
  fill_mixed(x, 1);
  Quantized out(Scheme::mxfp4, x.shape(), ScaleLayout::row_major);
  EXPECT_NO_THROW(quantize(x.buffer(), out.out()));
  Buffer elsewhere = x.buffer();
  BlockScaled q = out.out();
  elsewhere.device = q.device = first_cuda_device;
  EXPECT_THROW(quantize(elsewhere, q), Unsupported);
  EXPECT_THROW(dequantize(q, elsewhere), Unsupported);
}

}  // namespace
}  // namespace mxkern
