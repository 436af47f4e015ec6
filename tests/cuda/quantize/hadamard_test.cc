// tests/cuda/quantize/hadamard_test.cc: the Hadamard transform on the device against the CPU, bit
// for bit.
#include "mxkern/mxkern.h"
#include "tests/support/cuda/memory.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using namespace test;

using CudaHadamard = CudaTest;

void expect_cpu_bits(Tensor& x, const Hadamard& hadamard, bool inverse, bool misaligned) {
  const Shape& shape = x.shape();
  Tensor wanted(x.dtype(), shape), got(x.dtype(), shape);
  random_hadamard(x.buffer(), wanted.buffer(), hadamard, inverse);
  DeviceTensor device_x(x, misaligned), device_out(got, misaligned);
  random_hadamard(device_x.buffer(), device_out.buffer(), hadamard, inverse);
  device_out.copy_to(got);
  got.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
    if (::testing::Test::HasFatalFailure()) return;
    const float a = got.get(b, r, c), w = wanted.get(b, r, c);
    ASSERT_TRUE(got.bits(b, r, c) == wanted.bits(b, r, c) || (a != a && w != w))
        << name_of(x.dtype()) << ", size " << hadamard.size << (inverse ? ", inverse" : "") << " ["
        << shape.batch << ", " << shape.rows << ", " << shape.columns << "] at " << b << ", " << r
        << ", " << c << ": " << show(a) << ", wanted " << show(w);
  });
  // In place.
  random_hadamard(device_x.buffer(), device_x.buffer(), hadamard, inverse);
  Tensor in_place(x.dtype(), shape, 0);
  if (x.bytes().size() == in_place.bytes().size()) {
    device_x.copy_to(in_place);
    ASSERT_TRUE(std::equal(in_place.bytes().whole().begin(), in_place.bytes().whole().end(),
                           got.bytes().whole().begin()))
        << "in place, size " << hadamard.size;
  }
}

TEST_F(CudaHadamard, SizesSignsAndShapes) {
  int turn = 0;
  for (const DType dtype : all_dtypes) {
    for (const int size : hadamard_sizes) {
      for (const Shape& shape : {Shape{1, 1, 128}, Shape{1, 33, 256}, Shape{3, 20, 384}}) {
        for (const std::int64_t gap : {0, 1}) {
          Tensor x(dtype, shape, gap);
          fill_mixed(x, static_cast<std::uint64_t>(++turn));
          Hadamard hadamard{size};
          if (turn % 2 == 0) hadamard.signs = {0x0123456789ABCDEFu, 0xFEDCBA9876543210u};
          expect_cpu_bits(x, hadamard, turn % 3 == 0, turn % 5 == 0);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace mxkern
