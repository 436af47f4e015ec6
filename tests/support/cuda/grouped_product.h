// tests/support/cuda/grouped_product.h: a product whose rows or columns belong to groups on a
// CUDA device.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/gemm/gemm.h"
#include "cuda/gemm/grouped_gemm.h"
#include "cuda/gemm/device_groups.h"
#include "cuda/operands/expand.h"
#include "cuda/operands/fold.h"
#include "cuda/operands/row_scaled.h"
#include "plan/grouped.h"
#include "tests/support/cuda/operand.h"
#include "tests/support/cuda/prepared.h"
#include "tests/support/grouped_product.h"

namespace mxkern::test {

template <class T>
std::vector<std::uint8_t> bytes_of_values(const std::vector<T>& values) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(values.data());
  return {data, data + values.size() * sizeof(T)};
}

inline DeviceQuantizedOperand on_device(QuantizedOperand& host) {
  return DeviceQuantizedOperand(host);
}
inline DevicePlainTensor on_device(PlainTensor& host) { return DevicePlainTensor(host); }

// A product and all that it needs on the device.
template <class Left>
struct OnDevice {
  GroupedProduct<Left>& host;
  decltype(on_device(std::declval<Left&>())) a;
  DeviceQuantizedOperand b;
  DevicePlainTensor out;
  DeviceCopy ends, factors;
  std::optional<DevicePlainTensor> bias;
  std::optional<DevicePrepared> prepared, prepared_left;

  explicit OnDevice(GroupedProduct<Left>& product)
      : host(product),
        a(host.a),
        b(host.b),
        out(host.output_before()),
        ends(bytes_of_values(host.ends)),
        factors(bytes_of_values(host.factors)) {
    if (host.bias) bias.emplace(*host.bias);
  }

  Groups groups() {
    Groups groups = host.groups();
    groups.ends = reinterpret_cast<const std::int32_t*>(ends.data());
    return groups;
  }
  GroupedGemmOptions options() {
    GroupedGemmOptions options;
    options.alpha = host.alpha;
    options.beta = host.beta;
    options.precision = host.precision;
    if (!host.factors.empty()) options.factors = reinterpret_cast<const float*>(factors.data());
    if (bias) options.bias = &bias->view();
    return options;
  }
  // As kernels take them; the biases go to finish.
  cuda::DeviceGroups groups_for(cuda::CoreFinish& finish) {
    cuda::DeviceGroups rows{groups().ends, groups().count, options().factors};
    if (bias) {
      finish.bias = bias->view().data;
      finish.bias_dtype = bias->view().dtype;
      rows.bias_step = bias->view().batch_stride;
    }
    return rows;
  }
  // Without biases.
  cuda::CoreFinish finish() {
    cuda::CoreFinish finish;
    finish.out = out.view();
    finish.alpha = host.alpha;
    finish.right_tensor_scale = b.view().tensor_scale;
    return finish;
  }
  // Both operands, quantized ones, made ready and as the products of rows take them.
  std::pair<cuda::RowScaled, cuda::RowScaled> rows(bool is_folded) {
    const PreparedForm form = is_folded ? PreparedForm::folded : PreparedForm::expanded;
    prepare(form);
    prepare_left(form);
    const auto view = [&](const BlockScaled& q, void* memory) {
      return is_folded ? cuda::folded_view(q.scheme, q.shape, memory)
                       : cuda::expanded_view(q, memory);
    };
    return {view(a.view(), prepared_left->bytes.data()), view(b.view(), prepared->bytes.data())};
  }
  void prepare(PreparedForm form) { prepared.emplace(form, b.view()); }
  void prepare_left(PreparedForm form) { prepared_left.emplace(form, a.view()); }
  GemmOperand left() {
    return prepared_left ? GemmOperand(prepared_left->operand) : GemmOperand(a.view());
  }
  GemmRightOperand right() {
    return prepared ? GemmRightOperand(prepared->operand) : GemmRightOperand(b.view());
  }

  void call(Stream stream, Workspace workspace) {
    grouped_gemm(left(), right(), groups(), out.view(), options(), workspace, stream);
  }

  void run_as(const CudaGemmCapabilities& capabilities, Stream stream = {}) {
    const std::size_t bytes =
        plan_grouped_cuda(left(), right(), groups(), host.precision, capabilities).workspace_bytes;
    DeviceCopy memory(std::vector<std::uint8_t>(bytes + 1, 0xFF));
    cuda::grouped_gemm_as(capabilities, left(), right(), groups(), out.view(), options(),
                          {memory.data(), bytes}, stream);
    check_cuda(cudaDeviceSynchronize());
    out.copy_to(host.out);
  }
  void run() { run_as(cuda::gemm_capabilities("test", first_cuda_device)); }
};

// Against exact sums: element by element, where only these are meant.
template <class Left>
::testing::AssertionResult is_right(const GroupedProduct<Left>& p, const Reference& wanted,
                                    const std::string& what) {
  const std::string name = std::string(name_of(p.b.view.scheme)) + ", N " +
                           std::to_string(p.out.view.shape.columns) + ", " + what;
  const bool is_exact = p.precision == GemmPrecision::exact;
  const double rounding = p.out.view.dtype == DType::float32    ? 0.0
                          : p.out.view.dtype == DType::bfloat16 ? 2e-3
                                                                : 3e-4;
  const double error = relative_error(p.out, wanted);
  if (!is_exact || (rounding == 0.0 && std::isfinite(error))) {
    if (!(error <= (is_exact ? 2e-5 : 5e-4) + rounding)) {
      return ::testing::AssertionFailure() << name << ": relative error " << error;
    }
  }
  return is_exact ? agrees(p.out, wanted, name) : ::testing::AssertionSuccess();
}

// The product that run() computes is right, and the same when it is computed again.
template <class Left, class Run>
void expect_twice(OnDevice<Left>& device, const Reference& wanted, const std::string& what,
                  Run&& run) {
  GroupedProduct<Left>& p = device.host;
  std::vector<std::uint8_t> first;
  for (int turn = 0; turn < 2; ++turn) {
    run();
    check_cuda(cudaDeviceSynchronize());
    device.out.copy_to(p.out);
    if (turn == 0) first = p.out.bytes;
  }
  EXPECT_EQ(p.out.bytes, first) << what;
  ASSERT_TRUE(is_right(p, wanted, what));
}

// Whether bytes between rows and behind matrices of an output are as they were.
inline void expect_gaps(const GroupedProduct<QuantizedOperand>& p, const PlainTensor& before) {
  const Buffer& out = p.out.view;
  const std::size_t size = size_of(out.dtype);
  std::vector<bool> is_output(p.out.bytes.size(), false);
  for (std::int64_t row = 0; row < out.shape.batch * out.shape.rows; ++row) {
    const std::int64_t group = row / out.shape.rows;
    const std::int64_t first =
        group * out.batch_stride + (row - group * out.shape.rows) * out.row_stride;
    for (std::size_t i = 0; i < static_cast<std::size_t>(out.shape.columns) * size; ++i) {
      is_output[static_cast<std::size_t>(first) * size + i] = true;
    }
  }
  for (std::size_t i = 0; i < is_output.size(); ++i) {
    if (!is_output[i]) {
      ASSERT_EQ(p.out.bytes[i], before.bytes[i]) << i;
    }
  }
}

}  // namespace mxkern::test
