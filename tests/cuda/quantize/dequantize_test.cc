// tests/cuda/quantize/dequantize_test.cc: decoding any bytes on the device against the CPU, bit for
// bit.
#include "mxkern/mxkern.h"
#include "tests/support/cuda/memory.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using namespace test;

using CudaDequantize = CudaTest;

void fill_random(GuardedBytes& bytes, RandomBits& random) {
  for (std::int64_t i = 0; i < bytes.size(); ++i) {
    bytes.data()[i] = static_cast<std::uint8_t>(random.next());
  }
}

void expect_cpu_bits(Quantized& q, DType dtype, std::int64_t gap, bool misaligned) {
  Tensor wanted(dtype, q.view.shape, gap), got(dtype, q.view.shape, gap);
  dequantize(q.out(), wanted.buffer());
  DeviceQuantized device_q(q, misaligned);
  DeviceTensor device_out(got, misaligned);
  dequantize(device_q.view(), device_out.buffer());
  device_out.copy_to(got);
  const Shape& shape = q.view.shape;
  got.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
    if (::testing::Test::HasFatalFailure()) return;
    ASSERT_EQ(got.bits(b, r, c), wanted.bits(b, r, c))
        << name_of(q.view.scheme) << " to " << name_of(dtype) << " [" << shape.batch << ", "
        << shape.rows << ", " << shape.columns << "] at " << b << ", " << r << ", " << c << ": "
        << show(got.get(b, r, c)) << ", wanted " << show(wanted.get(b, r, c)) << ", gap " << gap
        << (misaligned ? ", misaligned" : "");
  });
  // Between the rows, too, nothing was written.
  ASSERT_TRUE(std::equal(got.bytes().whole().begin(), got.bytes().whole().end(),
                         wanted.bytes().whole().begin()));
}

TEST_F(CudaDequantize, AnyBytes) {
  RandomBits random(1);
  const Shape shapes[] = {{1, 1, 1},   {1, 33, 31},  {2, 16, 64}, {1, 130, 100}, {1, 128, 256},
                          {3, 5, 129}, {1, 200, 17}, {1, 0, 32},  {1, 7, 0},     {1, 1, 4096}};
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for (const ScaleLayout layout : all_scale_layouts) {
        for (const Shape& shape : shapes) {
          Quantized q(scheme, shape, layout);
          fill_random(q.codes, random);
          fill_random(q.scales, random);
          const float scales[] = {1.0f, 0x1p-140f, 0.37f, 3e38f, 0.0f, float_of(0x7FC00000u)};
          q.tensor_scale = scales[random.between(0, 5)];
          for (const bool misaligned : {false, true}) {
            expect_cpu_bits(q, dtype, misaligned ? 3 : 0, misaligned);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// Too many octets for the kernel of small tensors: tiles that are whole, and that rows or columns
// cut off, of whole octets and others.
TEST_F(CudaDequantize, TilesOfManyOctets) {
  RandomBits random(2);
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for (const ScaleLayout layout : all_scale_layouts) {
        for (const Shape& shape : {Shape{1, 512, 1024},
                                   {1, 1001, 1032},
                                   {3, 130, 1480},
                                   {2, 256, 1160},
                                   {1, 33, 16384},
                                   {1, 515, 1028}}) {
          Quantized q(scheme, shape, layout);
          fill_random(q.codes, random);
          // One in sixteen is any byte.
          for (std::int64_t i = 0; i < q.scales.size(); ++i) {
            q.scales.data()[i] = static_cast<std::uint8_t>(
                random.between(0, 15) == 0 ? random.between(0, 255) : random.between(60, 120));
          }
          q.tensor_scale = 0.37f;
          expect_cpu_bits(q, dtype, shape.rows == 1001 ? 8 : 0, false);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Every code under every scale.
TEST_F(CudaDequantize, EveryCodeUnderEveryScale) {
  for (const Scheme scheme : all_schemes) {
    const SchemeFacts facts = facts_of(scheme);
    const int codes_in_a_row = facts.bits == 8 ? 256 : 1 << facts.bits;
    const int columns = std::max(codes_in_a_row, facts.block) * 2;
    Quantized q(scheme, {1, 256, columns}, ScaleLayout::row_major);
    const std::int64_t row_bytes = code_row_bytes(scheme, columns);
    const std::int64_t blocks = columns / facts.block;
    for (std::int64_t row = 0; row < 256; ++row) {
      std::uint8_t* bytes = q.codes.data() + row * row_bytes;
      for (std::int64_t i = 0; i < row_bytes; ++i) {
        // Packed codes of any width: counting bytes passes through all of them.
        bytes[i] = static_cast<std::uint8_t>(facts.bits == 8 ? i : i * 37 + row);
      }
      for (std::int64_t b = 0; b < blocks; ++b) {
        q.scales.data()[row * blocks + b] = static_cast<std::uint8_t>(row);
      }
    }
    q.tensor_scale = 0.37f;
    for (const DType dtype : all_dtypes) {
      expect_cpu_bits(q, dtype, 0, false);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace mxkern
