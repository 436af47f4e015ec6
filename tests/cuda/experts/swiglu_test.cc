// tests/cuda/experts/swiglu_test.cc: SwiGLU on the device against the CPU, bit for bit.
#include "mxkern/mxkern.h"
#include "tests/support/cuda/operand.h"

namespace mxkern {
namespace {

using namespace test;

using CudaSwiglu = CudaTest;

TEST_F(CudaSwiglu, TheBytesOfTheCpu) {
  int turn = 0;
  for (const DType dtype : all_dtypes) {
    for (const bool is_gpt_oss : {false, true}) {
      for (const std::int64_t columns : {1, 7, 8, 64, 300, 2052}) {
        for (const bool misaligned : {false, true}) {
          const std::int64_t gap = ++turn % 2 * 8;
          PlainTensor x(dtype, {2, 37, 2 * columns}, gap), out(dtype, {2, 37, columns}, gap);
          const Values normal = normal_values(static_cast<std::uint64_t>(turn));
          x.fill([&](std::int64_t b, std::int64_t r, std::int64_t k) {
            return std::ldexp(normal(b, r, k), static_cast<int>((r * 7 + k) % 40 - 25));
          });
          const SwigluOptions options = is_gpt_oss ? SwigluOptions::gpt_oss() : SwigluOptions{};
          PlainTensor got = out;
          swiglu(x.buffer(), out.buffer(), options);
          DevicePlainTensor device_x(x, misaligned), device_out(got, misaligned);
          swiglu(device_x.view(), device_out.view(), options);
          device_out.copy_to(got);
          ASSERT_EQ(got.bytes, out.bytes)
              << name_of(dtype) << ", " << columns << " columns, " << is_gpt_oss << misaligned;
        }
      }
    }
  }
}

}  // namespace
}  // namespace mxkern
