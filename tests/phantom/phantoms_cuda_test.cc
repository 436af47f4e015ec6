// tests/phantom/phantoms_cuda_test.cc: schemes that no kernel was written for, on the device
// against the CPU, byte for byte.
#include "mxkern/dequantize.h"
#include "mxkern/fake_quantize.h"
#include "tests/support/cuda/expect_cpu_bytes.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using namespace test;

using CudaPhantoms = CudaTest;

void expect_same(const Tensor& got, const Tensor& wanted, const std::string& what) {
  got.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
    if (::testing::Test::HasFatalFailure()) return;
    ASSERT_EQ(got.bits(b, r, c), wanted.bits(b, r, c))
        << what << " at [" << b << ", " << r << ", " << c << "]: " << show(got.get(b, r, c))
        << ", wanted " << show(wanted.get(b, r, c));
  });
  ASSERT_TRUE(got.bytes().margins_are_intact()) << what;
}

TEST_F(CudaPhantoms, EveryOptionGivesTheBytesOfTheCpu) {
  const Shape shapes[] = {{1, 40, 70}, {2, 17, 65}, {1, 130, 33}, {1, 3, 260}, {1, 256, 512}};
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for_each_option(scheme, [&](const QuantizeOptions& options) {
        for (const Shape& shape : shapes) {
          if (HasFatalFailure()) return;
          Tensor x(dtype, shape, turn % 3 == 0 ? 5 : 0);
          ++turn % 4 == 0 ? fill_near_largest(x, static_cast<std::uint64_t>(turn))
                          : fill_mixed(x, static_cast<std::uint64_t>(turn));
          expect_cpu_bytes(x,
                           {scheme, all_scale_layouts[turn % 2], options, options, turn % 5 == 0});
        }
      });
    }
  }
}

TEST_F(CudaPhantoms, AnyBytesGiveTheValuesOfTheCpu) {
  RandomBits random(1);
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for (const ScaleLayout layout : all_scale_layouts) {
        for (const Shape& shape : {Shape{1, 33, 31},
                                   {2, 16, 64},
                                   {1, 130, 100},
                                   {3, 5, 129},
                                   {1, 512, 1024},
                                   {1, 200, 3000}}) {
          Quantized q(scheme, shape, layout);
          for (GuardedBytes* bytes : {&q.codes, &q.scales}) {
            for (std::int64_t i = 0; i < bytes->size(); ++i) {
              bytes->data()[i] = static_cast<std::uint8_t>(random.next());
            }
          }
          Tensor wanted(dtype, shape), got(dtype, shape);
          dequantize(q.out(), wanted.buffer());
          DeviceQuantized device_q(q);
          DeviceTensor device_out(got);
          dequantize(device_q.view(), device_out.buffer());
          device_out.copy_to(got);
          expect_same(got, wanted, concatenate(name_of(scheme), " to ", name_of(dtype)));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(CudaPhantoms, FakeQuantizeGivesTheValuesOfTheCpu) {
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for_each_option(scheme, [&](const QuantizeOptions& options) {
        for (const Shape& shape : {Shape{2, 37, 83}, {1, 70, 700}}) {
          if (HasFatalFailure()) return;
          Tensor x(dtype, shape), wanted(dtype, shape);
          fill_mixed(x, static_cast<std::uint64_t>(++turn));
          fake_quantize(x.buffer(), scheme, wanted.buffer(), options);
          DeviceTensor device_x(x);
          fake_quantize(device_x.buffer(), scheme, device_x.buffer(), options);  // in place
          device_x.copy_to(x);
          expect_same(x, wanted, concatenate(name_of(scheme), ", ", describe(x, options)));
        }
      });
    }
  }
}

}  // namespace
}  // namespace mxkern
