// tests/cuda/any/custom_test.cc: schemes and formats of the user's own on the device against the
// CPU, byte for byte.
#include "mxkern/custom.h"

#include "tests/support/any_schemes.h"
#include "tests/support/cuda/memory.h"
#include "tests/support/quantize_options.h"

namespace mxkern {
namespace {

using namespace test;

using CudaCustom = CudaTest;

// Bytes on the device.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t size) : size_(size) {
    check_cuda(cudaMalloc(&data_, size + 16));
  }
  ~DeviceBytes() { cudaFree(data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  void* data() const { return data_; }
  void copy_from(const void* host) {
    check_cuda(cudaMemcpy(data_, host, size_, cudaMemcpyHostToDevice));
  }
  void copy_to(void* host) const {
    check_cuda(cudaMemcpy(host, data_, size_, cudaMemcpyDeviceToHost));
  }

 private:
  void* data_ = nullptr;
  std::size_t size_;
};

void expect_same(const Tensor& got, const Tensor& want, const char* what, int turn) {
  got.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
    if (::testing::Test::HasFatalFailure()) return;
    ASSERT_EQ(got.bits(b, r, c), want.bits(b, r, c))
        << what << ", turn " << turn << " at " << b << ", " << r << ", " << c;
  });
}

TEST_F(CudaCustom, BytesOfTheCpu) {
  std::mt19937_64 random(22);
  const Shape shapes[] = {{1, 1, 1},    {2, 5, 33}, {1, 21, 130},
                          {1, 2, 5000}, {3, 1, 64}, {1, 64, 512}};
  for (int turn = 0; turn < 500; ++turn) {
    Drawn drawn = draw(random);
    AnyScheme& scheme = drawn.scheme;
    AnyOptions& options = drawn.options;
    if (scheme.is_whole_tensor()) {  // what CUDA has no kernels for
      scheme.tensor_scales = TensorScales::none;
      options.scale.mse = false;
    }
    const Shape& shape = shapes[turn % 6];
    Tensor x(all_dtypes[turn % 3], shape);
    fill_mixed(x, static_cast<std::uint64_t>(turn));
    DeviceTensor device_x(x, turn % 2 == 1);
    DeviceBytes found(static_cast<std::size_t>(shape.batch * shape.rows) * sizeof(float));
    options.found_amax = static_cast<float*>(found.data());

    AnyMemory want(scheme, shape), got(scheme, shape);
    AnyOptions on_cpu = options;
    on_cpu.found_amax = nullptr;
    quantize(AnyBuffer(x.buffer()), want.view, on_cpu);
    DeviceBytes codes(got.codes.size()), scales(got.scales.size());
    DeviceBytes tensor_scale(got.tensor_scale.size() * sizeof(float));
    AnyBlockScaled view = got.view;
    view.codes = codes.data();
    view.scales = scales.data();
    view.tensor_scale = static_cast<float*>(tensor_scale.data());
    view.device = first_cuda_device;
    quantize(AnyBuffer(device_x.buffer()), view, options);
    codes.copy_to(got.codes.data());
    scales.copy_to(got.scales.data());
    tensor_scale.copy_to(got.tensor_scale.data());
    ASSERT_TRUE(got == want) << "turn " << turn;

    Tensor values(x.dtype(), shape), wanted(x.dtype(), shape);
    DeviceTensor device_values(values);
    dequantize(want.view, AnyBuffer(wanted.buffer()));
    dequantize(view, AnyBuffer(device_values.buffer()));
    device_values.copy_to(values);
    expect_same(values, wanted, "dequantize", turn);
    fake_quantize(AnyBuffer(device_x.buffer()), scheme, AnyBuffer(device_values.buffer()), options);
    device_values.copy_to(values);
    expect_same(values, wanted, "fake_quantize", turn);
    round_to(AnyBuffer(x.buffer()), scheme.element, AnyBuffer(wanted.buffer()), on_cpu);
    round_to(AnyBuffer(device_x.buffer()), scheme.element, AnyBuffer(device_values.buffer()),
             options);
    device_values.copy_to(values);
    expect_same(values, wanted, "round_to", turn);
  }
}

TEST_F(CudaCustom, Products) {
  const std::int64_t m = 70, n = 90, k = 300;
  Tensor a(DType::float32, {2, m, k}), b(DType::float32, {1, n, k});
  Tensor want(DType::float32, {2, m, n}), got(DType::float32, {2, m, n});
  std::mt19937_64 random(4);
  for (Tensor* each : {&a, &b}) {
    each->for_each([&](std::int64_t i, std::int64_t r, std::int64_t c) {
      each->set(i, r, c, static_cast<float>(random() % 17) / 8 - 1);  // sums are exact
    });
  }
  const AnyProductOptions options{.alpha = 2.0f};
  multiply_float32(a.buffer(), b.buffer(), want.buffer(), options);
  DeviceTensor device_a(a), device_b(b), device_out(got);
  multiply_float32(device_a.buffer(), device_b.buffer(), device_out.buffer(), options);
  device_out.copy_to(got);
  expect_same(got, want, "multiply_float32", 0);
}

}  // namespace
}  // namespace mxkern
