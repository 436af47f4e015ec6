// tests/cuda/quantize/four_over_six_test.cc: NVFP4's choice between two scales, a block a thread,
// against the CPU.
#include "mxkern/mxkern.h"
#include "tests/support/compare_quantized.h"
#include "tests/support/cuda/memory.h"
#include "tests/support/quantize_options.h"

namespace mxkern {
namespace {

using namespace test;

using CudaFourOverSix = CudaTest;

// Along the rows and along the columns. `given`: an amax that is less or more than the tensor's; 0:
// it is found, so that kernels begin at the end.
void expect_cpu_bytes(Tensor& x, ScaleLayout layout, Rounding rounding, BlockError error,
                      float given) {
  DeviceTensor device_x(x);
  DeviceFloat device_given(given);
  QuantizeOptions on_cpu;
  on_cpu.four_over_six = true;
  on_cpu.block_error = error;
  on_cpu.rounding = rounding;
  on_cpu.seed = 0x123456789ABCDEFull;
  on_cpu.offset = std::uint64_t{5} << 40;
  on_cpu.amax = given != 0.0f ? &given : nullptr;
  QuantizeOptions on_device = on_cpu;
  on_device.amax = given != 0.0f ? device_given.address() : nullptr;
  for (const bool along_columns : {false, true}) {
    Quantized wanted(Scheme::nvfp4, along_columns ? x.shape().transposed() : x.shape(), layout);
    DeviceQuantized out(wanted);
    on_device.found_amax = out.found_amax();
    const auto run = [&](const Buffer& from, const BlockScaled& to, const QuantizeOptions& with) {
      along_columns ? quantize_columns(from, to, with) : quantize(from, to, with);
    };
    run(x.buffer(), wanted.out(), on_cpu);
    run(device_x.buffer(), out.view(), on_device);
    ASSERT_TRUE(same_bytes(out.on_host(), wanted))
        << describe(x, on_cpu) << ", given " << given << (along_columns ? ", columns" : ", rows");
  }
}

void expect_cpu_bytes(Tensor& x, float given = 0.0f) {
  for (const ScaleLayout layout : all_scale_layouts) {
    for (const Rounding rounding : all_roundings) {
      for (const BlockError error : all_block_errors) {
        expect_cpu_bytes(x, layout, rounding, error, given);
        if (CudaTest::HasFatalFailure()) return;
      }
    }
  }
}

// Rows and blocks that do not fill tiles of scales, batches, gaps between rows; one group of rows
// for each thread block and several.
TEST_F(CudaFourOverSix, EveryShape) {
  for (const DType dtype : all_dtypes) {
    for (const Shape& shape : {Shape{1, 640, 1024}, Shape{2, 300, 2064}, Shape{3, 129, 16},
                               Shape{1, 4, 4096}, Shape{2, 130, 80}, Shape{1, 2050, 4096}}) {
      for (const std::int64_t gap : {0, 8}) {
        Tensor x(dtype, shape, gap);
        fill_mixed(x, static_cast<std::uint64_t>(shape.size() + gap));
        expect_cpu_bytes(x);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Blocks that saturate, and such whose scales are 0, subnormal or the largest.
TEST_F(CudaFourOverSix, GivenAmax) {
  for (const DType dtype : all_dtypes) {
    Tensor x(dtype, {1, 256, 512});
    fill_mixed(x, 7);
    for (const float given : {1e-3f, 0.4f, 1.0f, 3.0f, 100.0f, 1e4f, 1e30f}) {
      expect_cpu_bytes(x, given);
      if (HasFatalFailure()) return;
    }
  }
}

// Down to subnormal elements, where a sixth of the largest one is not normal either.
TEST_F(CudaFourOverSix, TinyTensors) {
  for (const DType dtype : {DType::bfloat16, DType::float32}) {
    for (const int highest : {-90, -98, -101, -118, -123, -125, -126}) {
      Tensor x(dtype, {1, 128, 256});
      RandomBits random(static_cast<std::uint64_t>(highest + 200));
      x.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
        x.set(b, r, c, float_of(random.float_bits(-126, highest)) * (c % 32 < 16 ? 1.0f : 0x1p-9f));
      });
      expect_cpu_bytes(x);
      if (HasFatalFailure()) return;
    }
  }
}

// Both directions, whose options may differ. `choice` says how; an amax that is found for both is
// left for both, and one that is given may be another one.
void expect_cpu_bytes_of_both(Tensor& x, BlockShape block_shape, int choice) {
  QuantizeOptions of_rows, of_columns;
  of_rows.four_over_six = choice % 3 != 1;
  of_columns.four_over_six = choice % 3 != 0;
  if (of_rows.four_over_six) of_rows.block_error = all_block_errors[choice % 2];
  if (of_columns.four_over_six) of_columns.block_error = all_block_errors[choice / 2 % 2];
  if (choice > 8 && block_shape == BlockShape::row) of_columns.hadamard.size = 16;
  of_rows.rounding = of_columns.rounding = all_roundings[choice / 3 % 2];
  of_rows.block_shape = of_columns.block_shape = block_shape;
  const bool is_given = choice % 4 == 1;
  const float given = 3.0f;
  if (is_given) of_columns.amax = &given;
  const ScaleLayout layout = all_scale_layouts[choice % 2];
  Quantized rows(Scheme::nvfp4, x.shape(), layout);
  Quantized columns(Scheme::nvfp4, x.shape().transposed(), layout);
  float found[2] = {-1.0f, -1.0f};
  of_rows.found_amax = &found[0], of_columns.found_amax = &found[1];
  quantize_both(x.buffer(), rows.out(), columns.out(), of_rows, of_columns);
  DeviceTensor device_x(x);
  DeviceQuantized device_rows(rows), device_columns(columns);
  DeviceFloat of_device[2], device_given(given);
  of_rows.found_amax = of_device[0].address(), of_columns.found_amax = of_device[1].address();
  if (is_given) of_columns.amax = device_given.address();
  quantize_both(device_x.buffer(), device_rows.view(), device_columns.view(), of_rows, of_columns);
  ASSERT_TRUE(same_bytes(device_rows.on_host(), rows)) << describe(x, of_rows) << choice;
  ASSERT_TRUE(same_bytes(device_columns.on_host(), columns)) << describe(x, of_columns) << choice;
  ASSERT_EQ(of_device[0].value(), found[0]) << choice;
  if (!is_given) {
    ASSERT_EQ(of_device[1].value(), found[1]) << choice;
  }
}

// Rows and columns have a kernel each, squares one for both.
TEST_F(CudaFourOverSix, BothDirections) {
  for (const DType dtype : all_dtypes) {
    for (const Shape& shape : {Shape{1, 512, 640}, Shape{2, 272, 400}}) {
      for (const BlockShape block_shape : all_block_shapes) {
        for (int choice = 0; choice < 24; ++choice) {
          Tensor x(dtype, shape);
          fill_mixed(x, static_cast<std::uint64_t>(choice + 40));
          expect_cpu_bytes_of_both(x, block_shape, choice);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Squares whose scale depends on the order in which errors are added up.
TEST_F(CudaFourOverSix, NearTiesOfSquares) {
  const float amax = 2688.0f;
  DeviceFloat device_amax(amax);
  QuantizeOptions on_cpu;
  on_cpu.four_over_six = true;
  on_cpu.block_shape = BlockShape::square;
  QuantizeOptions on_device = on_cpu;
  on_cpu.amax = &amax;
  on_device.amax = device_amax.address();
  for (const Shape& shape : {Shape{1, 256, 320}, Shape{2, 100, 84}, Shape{1, 1040, 1056}}) {
    Tensor x(DType::float32, shape);
    fill_near_ties(x, 23);
    DeviceTensor device_x(x);
    Quantized rows(Scheme::nvfp4, shape, ScaleLayout::row_major);
    Quantized columns(Scheme::nvfp4, shape.transposed(), ScaleLayout::row_major);
    quantize_both(x.buffer(), rows.out(), columns.out(), on_cpu, on_cpu);
    for (const bool both : {false, true}) {
      DeviceQuantized device_rows(rows), device_columns(columns);
      if (both) {
        quantize_both(device_x.buffer(), device_rows.view(), device_columns.view(), on_device,
                      on_device);
      } else {
        quantize(device_x.buffer(), device_rows.view(), on_device);
        quantize_columns(device_x.buffer(), device_columns.view(), on_device);
      }
      ASSERT_TRUE(same_bytes(device_rows.on_host(), rows)) << "both " << both;
      ASSERT_TRUE(same_bytes(device_columns.on_host(), columns)) << "both " << both;
    }
  }
}

}  // namespace
}  // namespace mxkern
