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

// Everything that a scheme does to x, on the device as on the CPU.
void expect_cpu_bytes(Tensor& x, const AnyScheme& scheme, AnyOptions options, int turn,
                      bool misaligned, ScaleLayout layout = ScaleLayout::row_major) {
  const Shape& shape = x.shape();
  DeviceTensor device_x(x, misaligned);
  DeviceBytes found(static_cast<std::size_t>(shape.batch * shape.rows) * sizeof(float));
  options.found_amax = static_cast<float*>(found.data());

  AnyMemory want(scheme, shape, layout), got(scheme, shape, layout);
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

TEST_F(CudaCustom, BytesOfTheCpu) {
  std::mt19937_64 random(22);
  const Shape shapes[] = {{1, 1, 1},    {2, 5, 33}, {1, 21, 130},
                          {1, 2, 5000}, {3, 1, 64}, {1, 64, 512}};
  for (int turn = 0; turn < 500; ++turn) {
    Drawn drawn = draw(random);
    if (drawn.scheme.is_whole_tensor()) {  // what CUDA has no kernels for
      drawn.scheme.tensor_scales = TensorScales::none;
      drawn.options.scale.mse = false;
    }
    Tensor x(all_dtypes[turn % 3], shapes[turn % 6]);
    fill_mixed(x, static_cast<std::uint64_t>(turn));
    expect_cpu_bytes(x, drawn.scheme, drawn.options, turn, turn % 2 == 1);
    if (HasFatalFailure()) return;
  }
}

// What has kernels of its own: codes of at most 8 bits, rounded to nearest, in rows and blocks of
// whole octets.
TEST_F(CudaCustom, BytesOfNarrowCodes) {
  constexpr Specials none = Specials::none, nan = Specials::nan_only, ieee = Specials::ieee;
  const AnyFormat elements[] = {
      {3, 4, true, false, none}, {4, 3, true, false, nan},     {2, 1, true, false, none},
      {3, 2, true, false, none}, {5, 2, true, false, ieee},    AnyFormat::integer(8),
      AnyFormat::integer(4),     AnyFormat::integer(6, false), AnyFormat::integer(4, false),
      {1, 0, true, false, none}, {0, 7, true, false, none},    {0, 1, false, false, none},
      {2, 2, true, false, none}};
  const AnyScaleFormat scales[] = {{AnyScaleKind::power, 8, 0},     {AnyScaleKind::power, 4, 0},
                                   {AnyScaleKind::magnitude, 4, 3}, {AnyScaleKind::magnitude, 5, 3},
                                   {AnyScaleKind::magnitude, 8, 7}, {AnyScaleKind::magnitude, 5, 5},
                                   {AnyScaleKind::single, 8, 23}};
  struct Blocks {
    std::int64_t rows, columns;
    bool square;
  };
  const Blocks blocks[] = {{1, 8, false},  {1, 16, false},    {1, 32, false}, {1, 64, false},
                           {1, 24, false}, {1, 256, false},   {1, 0, false},  {1, 512, false},
                           {4, 8, false},  {128, 128, false}, {1, 16, true},  {1, 32, true}};
  const Shape shapes[] = {{1, 64, 512}, {2, 40, 272}, {3, 5, 136},
                          {1, 2, 5000}, {1, 3, 8},    {2, 130, 384}};
  int turn = 0;
  for (const AnyFormat& element : elements) {
    for (const AnyScaleFormat& scale : scales) {
      for (const Blocks& block : blocks) {
        ++turn;
        AnyScheme scheme{element, scale, block.rows, block.columns};
        if (scale.kind == AnyScaleKind::magnitude) {
          scheme.tensor_scales = static_cast<TensorScales>(turn % 3);
          if ((block.rows > 1 || block.square) && scheme.tensor_scales == TensorScales::row) {
            scheme.tensor_scales = TensorScales::tensor;
          }
        }
        AnyOptions options;
        options.square = block.square;
        if (scale.kind == AnyScaleKind::power) options.scale.rule = all_scale_rules[turn / 3 % 4];
        options.rounding.saturates = turn % 5 != 0;
        const bool can_swizzle = scale.stored_bits() == 8 && block.rows == 1;
        Tensor x(all_dtypes[turn % 3], shapes[turn % 6 ^ (turn / 6 % 2)]);
        fill_mixed(x, static_cast<std::uint64_t>(turn));
        expect_cpu_bytes(
            x, scheme, options, turn, turn % 16 == 7,
            can_swizzle && turn / 2 % 2 == 0 ? ScaleLayout::swizzled : ScaleLayout::row_major);
        if (HasFatalFailure()) return;
      }
    }
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
