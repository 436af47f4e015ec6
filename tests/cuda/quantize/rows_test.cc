// tests/cuda/quantize/rows_test.cc: each kernel along rows, from small tensors to large, against
// the CPU.
#include "mxkern/mxkern.h"
#include "tests/support/compare_quantized.h"
#include "tests/support/cuda/memory.h"

namespace mxkern {
namespace {

using namespace test;

using CudaQuantizeRows = CudaTest;

// NVFP4: with an amax that is found, which has kernels begin at the end, and with a given one.
void expect_cpu_bytes(Tensor& x, DeviceTensor& device_x, Scheme scheme, ScaleLayout layout,
                      Rounding rounding) {
  const float given = 6.5f;
  DeviceFloat device_given(given);
  for (const bool is_given : {false, true}) {
    if (is_given && !facts_of(scheme).has_tensor_scale) continue;
    Quantized wanted(scheme, x.shape(), layout);
    DeviceQuantized out(wanted);
    QuantizeOptions on_cpu;
    on_cpu.rounding = rounding;
    on_cpu.seed = 0x123456789ABCDEFull;
    on_cpu.offset = std::uint64_t{5} << 40;
    QuantizeOptions on_device = on_cpu;
    on_cpu.amax = is_given ? &given : nullptr;
    on_device.amax = is_given ? device_given.address() : nullptr;
    on_device.found_amax = out.found_amax();
    quantize(x.buffer(), wanted.out(), on_cpu);
    quantize(device_x.buffer(), out.view(), on_device);
    ASSERT_TRUE(same_bytes(out.on_host(), wanted)) << name_of(x.dtype()) << ", given " << is_given;
  }
}

// All schemes in both layouts.
void expect_cpu_bytes(DType dtype, const Shape& shape, std::int64_t gap = 0,
                      Rounding rounding = Rounding::nearest) {
  Tensor x(dtype, shape, gap);
  fill_mixed(x, static_cast<std::uint64_t>(shape.size() + gap));
  DeviceTensor device_x(x);
  for (const Scheme scheme : all_schemes) {
    for (const ScaleLayout layout : all_scale_layouts) {
      expect_cpu_bytes(x, device_x, scheme, layout, rounding);
      if (CudaTest::HasFatalFailure()) return;
    }
  }
}

// Whole tiles of 128 rows and ragged ones; whole stretches of 1024 elements that are part of a row,
// span several, or are not whole; batches, and gaps between rows.
TEST_F(CudaQuantizeRows, OfAMegabyte) {
  const Shape shapes[] = {{1, 640, 1024}, {1, 300, 2048}, {1, 96, 7200}, {1, 1, 600064},
                          {1, 21024, 32}, {1, 21000, 32}, {2, 384, 1536}};
  for (const DType dtype : all_dtypes) {
    for (const Shape& shape : shapes) {
      expect_cpu_bytes(dtype, shape);
      if (HasFatalFailure()) return;
    }
    expect_cpu_bytes(dtype, {2, 384, 1536}, 8);
    if (HasFatalFailure()) return;
  }
}

// So many that a thread block has a single piece of the work.
TEST_F(CudaQuantizeRows, OfManyMegabytes) {
  for (const DType dtype : {DType::bfloat16, DType::float32}) {
    for (const Shape& shape : {Shape{1, 4100, 4096}, Shape{2, 4096, 4096}}) {
      expect_cpu_bytes(dtype, shape);
      if (HasFatalFailure()) return;
    }
  }
}

// With random words: one to eight groups of rows for each thread block, and ragged tiles.
TEST_F(CudaQuantizeRows, RoundedStochastically) {
  const Shape shapes[] = {
      {1, 128, 512}, {1, 2048, 4096}, {1, 2050, 4000}, {1, 16384, 4096}, {3, 384, 1536}};
  for (const DType dtype : all_dtypes) {
    for (const Shape& shape : shapes) {
      expect_cpu_bytes(dtype, shape, shape.batch == 3 ? 8 : 0, Rounding::stochastic);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace mxkern
