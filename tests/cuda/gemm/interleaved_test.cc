// tests/cuda/gemm/interleaved_test.cc: products of which the rows of a matrix lie in the gaps of
// the others, in a plain left operand or in the output.
#include <cstring>
#include <vector>

#include "mxkern/gemm.h"
#include "tests/support/cuda/operand.h"
#include "tests/support/gemm_reference.h"
#include "tests/support/cuda/hopper_test.h"

namespace mxkern {
namespace {

using namespace test;

QuantizedOperand quantized(Scheme scheme, Shape shape, std::uint64_t seed) {
  QuantizedOperand operand(scheme, shape, ScaleLayout::row_major);
  operand.quantize(normal_values(seed));
  return operand;
}

void multiply_into(PlainTensor& out, const GemmOperand& a, const GemmRightOperand& b,
                   const GemmOptions& options) {
  DevicePlainTensor device_out(out);
  const std::size_t bytes = gemm_workspace_bytes(a, b, device_out.view(), options);
  DeviceBytes memory(bytes);
  gemm(a, b, device_out.view(), options, {memory.data(), bytes});
  check_cuda(cudaDeviceSynchronize());
  device_out.copy_to(out);
}

bool have_the_same_elements(const PlainTensor& x, const PlainTensor& y) {
  const Shape& shape = x.view.shape;
  const std::size_t size = size_of(x.view.dtype);
  const auto row = [&](const PlainTensor& tensor, std::int64_t i) {
    const std::int64_t first = tensor.position(i / shape.rows, i % shape.rows, 0);
    return tensor.bytes.data() + static_cast<std::size_t>(first) * size;
  };
  for (std::int64_t i = 0; i < shape.batch * shape.rows; ++i) {
    const std::size_t row_bytes = static_cast<std::size_t>(shape.columns) * size;
    if (std::memcmp(row(x, i), row(y, i), row_bytes) != 0) return false;
  }
  return true;
}

using InterleavedGemm = CudaTest;

TEST_F(InterleavedGemm, OutputsHaveTheBytesOfDenseOnes) {
  for (const GemmPrecision precision : all_gemm_precisions) {
    if (precision == GemmPrecision::folded && !has_hopper_products()) continue;
    for (const DType dtype : all_dtypes) {
      for (const std::int64_t n : {72, 77}) {
        for (const std::int64_t right_batch : {1, 3}) {
          QuantizedOperand host_a = quantized(Scheme::mxfp8_e4m3, {3, 133, 288}, 1);
          QuantizedOperand host_b = quantized(Scheme::mxfp4, {right_batch, n, 288}, 2);
          DeviceQuantizedOperand a(host_a), b(host_b);
          PlainTensor dense(dtype, {3, 133, n}), out(dtype, {3, 133, n});
          out.interleave_matrices();
          multiply_into(dense, a.view(), b.view(), {.precision = precision});
          multiply_into(out, a.view(), b.view(), {.precision = precision});
          ASSERT_LE(relative_error(dense, multiply(host_a, host_b, dense)), 5e-3);
          EXPECT_TRUE(have_the_same_elements(out, dense))
              << name_of(precision) << ", " << name_of(dtype) << ", " << n << " columns, "
              << right_batch << " right operands";
        }
      }
    }
  }
}

TEST_F(InterleavedGemm, PlainLeftOperands) {
  for (const std::int64_t rows : {3, 40, 200}) {
    for (const std::int64_t columns : {160, 165}) {
      for (const std::int64_t right_batch : {1, 3}) {
        QuantizedOperand host_b = quantized(Scheme::mxfp4, {right_batch, 72, columns}, 5);
        DeviceQuantizedOperand b(host_b);
        PlainTensor host_a(DType::bfloat16, {3, rows, columns});
        PlainTensor out(DType::float32, {3, rows, 72});
        host_a.interleave_matrices();
        out.interleave_matrices();
        host_a.fill(normal_values(6));
        DevicePlainTensor a(host_a);
        multiply_into(out, a.view(), b.view(), {});
        EXPECT_LE(relative_error(out, multiply(host_a, host_b, out)), 2e-5)
            << rows << " x " << columns << ", " << right_batch << " right operands";
      }
    }
  }
}

}  // namespace
}  // namespace mxkern
