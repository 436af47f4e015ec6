// tests/cuda/quantize/tensor_amax_test.cc: the largest finite magnitude on the device against the
// CPU.
#include <array>

#include "mxkern/mxkern.h"
#include "tests/support/cuda/memory.h"
#include "tests/support/random_bits.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using namespace test;

using CudaTensorAmax = CudaTest;

void expect_amax(Tensor& x, float wanted, bool misaligned = false) {
  DeviceTensor device_x(x, misaligned);
  DeviceFloat amax;
  tensor_amax(device_x.buffer(), amax.address());
  const Shape& shape = x.shape();
  ASSERT_EQ(bits_of(amax.value()), bits_of(wanted))
      << name_of(x.dtype()) << " [" << shape.batch << ", " << shape.rows << ", " << shape.columns
      << "]: " << show(amax.value()) << ", wanted " << show(wanted);
}

TEST_F(CudaTensorAmax, ShapesGapsAndSpecials) {
  int turn = 0;
  for (const DType dtype : all_dtypes) {
    for (const Shape& shape : {Shape{1, 1, 1}, Shape{1, 33, 100}, Shape{3, 20, 64}, Shape{1, 0, 9},
                               Shape{2, 1, 5000}, Shape{1, 3000, 3}, Shape{1, 300, 1000}}) {
      for (const std::int64_t gap : {0, 1, 8}) {
        Tensor x(dtype, shape, gap);
        fill_mixed(x, static_cast<std::uint64_t>(++turn));
        float wanted = -1.0f;
        tensor_amax(x.buffer(), &wanted);
        for (const bool misaligned : {false, true}) expect_amax(x, wanted, misaligned);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaTensorAmax, FindsOneElementWhereverItIs) {
  Tensor x(DType::bfloat16, {1, 70, 130});
  x.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) { x.set(b, r, c, 0x1p-130f); });
  for (std::int64_t i = 0; i < x.shape().size(); i += 61) {
    const std::int64_t row = i / 130, column = i % 130;
    x.set(0, row, column, -3.0f);
    expect_amax(x, 3.0f);
    x.set(0, row, column, float_of(float32::infinity_bits));
    expect_amax(x, 0x1p-130f);
    x.set(0, row, column, 0x1p-130f);
    if (HasFatalFailure()) return;
  }
}

TEST_F(CudaTensorAmax, OfATransform) {
  for (const DType dtype : all_dtypes) {
    for (const int size : hadamard_sizes) {
      for (const std::int64_t gap : {0, 3}) {
        Tensor x(dtype, {2, 3 * size, 2 * size}, gap);
        fill_mixed(x, static_cast<std::uint64_t>(size));
        DeviceTensor device_x(x);
        DeviceFloat amax;
        for (const bool columns : {false, true}) {
          const AmaxOptions options{{size, {0x123456789ABCDEFull, 0xFEDCBA987654321ull}}, columns};
          float wanted = -1.0f;
          tensor_amax(x.buffer(), &wanted, options);
          tensor_amax(device_x.buffer(), amax.address(), options);
          ASSERT_EQ(bits_of(amax.value()), bits_of(wanted))
              << name_of(dtype) << ", " << size << (columns ? " along columns" : " along rows");
        }
      }
    }
  }
}

// What quantize_both finds: of x, and of a transform along its columns; in one read of x where
// elements have 16 bits and rows begin on 16 bytes.
TEST_F(CudaTensorAmax, OfXAndOfItsTransform) {
  std::uint64_t turn = 0;
  for (const DType dtype : all_dtypes) {
    for (const Shape& shape : {Shape{1, 16, 4}, Shape{1, 48, 24}, Shape{2, 48, 264},
                               Shape{1, 2048, 2080}, Shape{3, 4112, 96}, Shape{1, 64, 12296}}) {
      for (const std::int64_t gap : {0, 8, 4, 1}) {
        // Some sums overflow; some are subnormal; some groups are not finite.
        const int highest = dtype == DType::float16 ? 15 : std::array{127, 120, -120}[turn % 3];
        Tensor x(dtype, shape, gap);
        ++turn;
        fill_mixed(x, turn, turn % 4 != 0);
        RandomBits random(turn);
        for (int i = 0; i < 20 && turn % 2 == 0; ++i) {
          x.set(0, random.between(0, static_cast<int>(shape.rows) - 1),
                random.between(0, static_cast<int>(shape.columns) - 1),
                float_of(random.float_bits(highest - 2, highest)));
        }
        QuantizeOptions options[2];
        options[1].hadamard.size = 16;
        options[1].hadamard.signs = {random.next64(), random.next64()};
        Quantized rows(Scheme::nvfp4, shape, ScaleLayout::row_major);
        Quantized columns(Scheme::nvfp4, shape.transposed(), ScaleLayout::row_major);
        DeviceQuantized device_rows(rows), device_columns(columns);
        DeviceTensor device_x(x);
        options[0].found_amax = device_rows.found_amax();
        options[1].found_amax = device_columns.found_amax();
        quantize_both(device_x.buffer(), device_rows.view(), device_columns.view(), options[0],
                      options[1]);
        for (int i = 0; i < 2; ++i) {
          float wanted = -1.0f, found = -1.0f;
          tensor_amax(x.buffer(), &wanted, {options[i].hadamard, i == 1});
          check_cuda(
              cudaMemcpy(&found, options[i].found_amax, sizeof found, cudaMemcpyDeviceToHost));
          ASSERT_EQ(bits_of(found), bits_of(wanted))
              << name_of(dtype) << " [" << shape.batch << ", " << shape.rows << ", "
              << shape.columns << "], gap " << gap << (i == 0 ? ", x: " : ", transform: ")
              << show(found) << ", wanted " << show(wanted);
        }
      }
    }
  }
}

TEST_F(CudaTensorAmax, NothingFiniteGivesZero) {
  Tensor x(DType::float32, {1, 9, 40});
  x.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
    x.set(b, r, c, float_of(c % 2 == 0 ? 0xFF800000u : 0x7FFFFFFFu));
  });
  expect_amax(x, 0.0f);
}

}  // namespace
}  // namespace mxkern
