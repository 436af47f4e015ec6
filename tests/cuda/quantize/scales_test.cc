// tests/cuda/quantize/scales_test.cc: scale layouts on the device against the CPU, byte for byte.
#include "mxkern/mxkern.h"
#include "tests/support/cuda/memory.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using namespace test;

using CudaScales = CudaTest;

void expect_same(GuardedBytes& got, const GuardedBytes& wanted, const char* what,
                 const Shape& shape) {
  for (std::int64_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(got.data()[i], wanted.data()[i])
        << what << " [" << shape.batch << ", " << shape.rows << ", " << shape.columns
        << "] at byte " << i << ": " << show_code(got.data()[i]) << ", wanted "
        << show_code(wanted.data()[i]);
  }
  ASSERT_TRUE(got.margins_are_intact()) << what;
}

TEST_F(CudaScales, ThereAndBack) {
  RandomBits random(3);
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{2, 128, 4}, Shape{3, 200, 5}, Shape{1, 127, 33},
                             Shape{1, 0, 4}, Shape{1, 1000, 64}}) {
    const ScaleIndex flat{shape.rows, shape.columns, ScaleLayout::row_major};
    const ScaleIndex tiled{shape.rows, shape.columns, ScaleLayout::swizzled};
    GuardedBytes scales(shape.batch * flat.size()), wanted(shape.batch * tiled.size());
    for (std::int64_t i = 0; i < scales.size(); ++i) {
      scales.data()[i] = static_cast<std::uint8_t>(random.next());
    }
    swizzle_scales(scales.data(), wanted.data(), shape.batch, shape.rows, shape.columns);

    GuardedBytes there(wanted.size()), back(scales.size());
    DeviceTwin device_scales(scales), device_there(there), device_back(back);
    swizzle_scales(device_scales.data(), device_there.data(), shape.batch, shape.rows,
                   shape.columns, first_cuda_device);
    unswizzle_scales(device_there.data(), device_back.data(), shape.batch, shape.rows,
                     shape.columns, first_cuda_device);
    device_there.copy_to(there);
    device_back.copy_to(back);
    expect_same(there, wanted, "swizzled", shape);
    expect_same(back, scales, "row-major", shape);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace mxkern
