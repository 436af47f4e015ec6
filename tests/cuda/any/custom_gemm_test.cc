// tests/cuda/any/custom_gemm_test.cc: products on the device whose right operand is by a scheme of
// the user's own, decoded to bfloat16, against double precision.
#include "tests/support/cuda/operand.h"
#include "tests/support/custom_operand.h"
#include "tests/support/gemm_reference.h"

namespace mxkern {
namespace {

using namespace test;

using CudaCustomGemm = CudaTest;

AnyScheme power_scheme(AnyFormat element, std::int64_t columns, std::int64_t rows = 1) {
  return {element, {AnyScaleKind::power, 8, 0}, rows, columns, TensorScales::none};
}

Values normal(std::uint64_t seed) {
  return [seed](std::int64_t batch, std::int64_t row, std::int64_t k) {
    RandomBits random(seed * 1000003 + static_cast<std::uint64_t>((batch * 517 + row) * 8191 + k));
    const double sign = random.next() % 2 == 0 ? 1.0 : -1.0;
    return sign * (0.01 + static_cast<double>(random.next() % 1024) / 256.0);
  };
}

// Codes and scales on the device.
struct DeviceCustomOperand {
  DeviceBytes codes, scales;
  AnyBlockScaled view;

  explicit DeviceCustomOperand(const CustomOperand& host)
      : codes(host.memory.codes.size()), scales(host.memory.scales.size()), view(host.view) {
    copy_to_device(codes.data(), host.memory.codes.data(), host.memory.codes.size());
    copy_to_device(scales.data(), host.memory.scales.data(), host.memory.scales.size());
    view.codes = codes.data();
    view.scales = scales.data();
    view.tensor_scale = nullptr;
    view.device = first_cuda_device;
  }
};

void expect_product(const AnyScheme& scheme, const Shape& shape, std::int64_t columns,
                    DType left_dtype, DType out_dtype) {
  CustomOperand b(scheme, {1, columns, shape.columns}, normal(1));
  PlainTensor a(left_dtype, shape), bias(DType::float32, {1, 1, columns});
  a.fill(normal(2));
  bias.fill(normal(3));
  PlainTensor out(out_dtype, {shape.batch, shape.rows, columns});
  out.fill(normal(4));
  DeviceCustomOperand right(b);
  DevicePlainTensor left(a), offset(bias), result(out);
  const GemmOptions options{.alpha = 1.5f, .beta = -2.0f, .bias = &offset.view()};
  const Reference want = multiply(a, b, out, options, &bias);
  const std::size_t bytes =
      custom_gemm_workspace_bytes(left.view(), right.view, result.view(), options);
  DeviceBytes memory(bytes);
  check_cuda(cudaMemset(memory.data(), 0xFF, bytes));
  gemm(left.view(), right.view, result.view(), options, {memory.data(), bytes});
  check_cuda(cudaDeviceSynchronize());
  result.copy_to(out);
  // The bound of an exact product, and of rounding to the output.
  const double bound = out_dtype == DType::float32 ? 2e-5 : 5e-3;
  EXPECT_LE(relative_error(out, want), bound)
      << name_of(left_dtype) << ", K = " << shape.columns << ", N = " << columns;
}

TEST_F(CudaCustomGemm, SchemesShapesAndTypes) {
  const AnyFormat e3m4{3, 4, true, false, Specials::none};
  const AnyScheme schemes[] = {power_scheme(e3m4, 64), power_scheme(AnyFormat::integer(9), 33),
                               power_scheme({2, 1, true, false, Specials::none}, 16),
                               power_scheme(e3m4, 128, 128), power_scheme(e3m4, 0)};
  const Shape shapes[] = {{1, 1, 8}, {1, 5, 33}, {2, 70, 130}, {1, 130, 1024}, {1, 256, 512}};
  for (const AnyScheme& scheme : schemes) {
    for (const Shape& shape : shapes) {
      for (const DType dtype : all_dtypes) {
        expect_product(scheme, shape, 136, dtype, DType::float32);
        expect_product(scheme, shape, 37, dtype, DType::bfloat16);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(CudaCustomGemm, QuantizedLeftOperands) {
  CustomOperand b(power_scheme({3, 4, true, false, Specials::none}, 64), {1, 72, 256}, normal(1));
  DeviceCustomOperand right(b);
  for (const Scheme scheme : all_schemes) {
    QuantizedOperand a(scheme, {1, 96, 256}, ScaleLayout::row_major);
    a.quantize(normal(5));
    DeviceQuantizedOperand left(a);
    PlainTensor out(DType::float32, {1, 96, 72});
    DevicePlainTensor result(out);
    const std::size_t bytes = custom_gemm_workspace_bytes(left.view(), right.view, result.view());
    DeviceBytes memory(bytes);
    gemm(left.view(), right.view, result.view(), {}, {memory.data(), bytes});
    check_cuda(cudaDeviceSynchronize());
    result.copy_to(out);
    ASSERT_LE(relative_error(out, multiply(a, b, out)), 2e-5) << name_of(scheme);
  }
}

}  // namespace
}  // namespace mxkern
