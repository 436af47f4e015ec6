// tests/cuda/experts/grouped_rows_test.cc: grouped products on the device whose rows copy rows of
// a: the bytes of products of rows that are copied ahead.
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "cuda/experts/gather_rows.h"
#include "mxkern/mxkern.h"
#include "tests/support/cuda/grouped_product.h"
#include "tests/support/cuda/hopper_test.h"

namespace mxkern {
namespace {

using namespace test;

using CudaGroupedRows = CudaTest;
using CudaGroupedRowsFolded = HopperTest;

const std::vector<std::int32_t> ends = {0, 3, 3, 21, 22, 36, 36};

// The last two belong to no group.
std::vector<std::int32_t> rows_of(std::int64_t tokens) {
  std::vector<std::int32_t> rows;
  for (std::int64_t i = 0; i < 36; ++i) {
    rows.push_back(static_cast<std::int32_t>(i % 7 == 3 ? -1 : i * 5 % tokens));
  }
  rows.insert(rows.end(), {99999, -7});
  return rows;
}

// A product of `a` with weights of so many columns.
struct Product {
  QuantizedOperand b;
  PlainTensor out;
  GroupedGemmOptions options;

  Product(Scheme scheme, std::int64_t k)
      : b(scheme, {7, 48, k}, ScaleLayout::row_major), out(DType::float32, {1, 38, 48}) {
    b.quantize(normal_values(2));
  }

  void run(const GemmOperand& a, const std::vector<std::int32_t>& rows = {}) {
    DeviceQuantizedOperand weights(b);
    DevicePlainTensor device_out(out);
    DeviceCopy device_ends(bytes_of_values(ends)), numbers(bytes_of_values(rows));
    const RowGroups groups{reinterpret_cast<const std::int32_t*>(device_ends.data()), 7};
    if (!rows.empty()) options.rows = reinterpret_cast<const std::int32_t*>(numbers.data());
    const std::size_t bytes =
        grouped_gemm_workspace_bytes(a, weights.view(), groups, device_out.view(), options);
    DeviceCopy memory(std::vector<std::uint8_t>(bytes + 1, 0xFF));
    grouped_gemm(a, weights.view(), groups, device_out.view(), options, {memory.data(), bytes});
    check_cuda(cudaDeviceSynchronize());
    device_out.copy_to(out);
  }
};

// Rows of `tokens` as the host would copy them.
QuantizedOperand copies_of(QuantizedOperand& tokens, const std::vector<std::int32_t>& rows) {
  const Shape shape{1, static_cast<std::int64_t>(rows.size()), tokens.view.shape.columns};
  QuantizedOperand copies(tokens.view.scheme, shape, ScaleLayout::row_major);
  copies.quantize([](std::int64_t, std::int64_t, std::int64_t) { return 0.0; });
  copies.tensor_scale = tokens.tensor_scale;
  const int bits = facts_of(tokens.view.scheme).bits;
  for (std::int64_t i = 0; i < shape.rows; ++i) {
    const std::int64_t from = rows[static_cast<std::size_t>(i)];
    if (from < 0 || from >= tokens.view.shape.rows) continue;
    for (std::int64_t k = 0; k < shape.columns; ++k) {
      copies.set_code(0, i, k, get_code(tokens.codes, tokens.code_position(0, from, k), bits));
    }
    for (std::int64_t block = 0; block < tokens.view.scale_index().blocks; ++block) {
      copies.scale(0, i, block) = tokens.scale(0, from, block);
    }
  }
  return copies;
}

TEST_F(CudaGroupedRows, PlainRowsAreThoseOfCopies) {
  for (const DType dtype : all_dtypes) {
    for (const std::int64_t k : {130, 256}) {
      const auto rows = rows_of(11);
      PlainTensor tokens(dtype, {1, 11, k}, 5), copies(dtype, {1, 38, k});
      tokens.fill(normal_values(1));
      copies.fill([&](std::int64_t, std::int64_t row, std::int64_t column) {
        const std::int64_t from = rows[static_cast<std::size_t>(row)];
        return from < 0 || from > 10 ? 0.0 : tokens.value(0, from, column);
      });
      Product product(Scheme::mxfp4, k);
      product.run(DevicePlainTensor(copies).view());
      const std::vector<std::uint8_t> wanted = product.out.bytes;
      product.run(DevicePlainTensor(tokens).view(), rows);
      ASSERT_EQ(product.out.bytes, wanted) << name_of(dtype) << ", " << k;
    }
  }
}

TEST_F(CudaGroupedRows, QuantizedAndExpandedRowsAreThoseOfCopies) {
  for (const Scheme scheme : all_schemes) {
    for (const ScaleLayout layout : all_scale_layouts) {
      const auto rows = rows_of(11);
      QuantizedOperand tokens(scheme, {1, 11, 160}, layout);
      tokens.quantize(normal_values(1));
      QuantizedOperand copies = copies_of(tokens, rows);
      Product product(Scheme::mxfp4, 160);
      product.run(DeviceQuantizedOperand(copies).view());
      const std::vector<std::uint8_t> wanted = product.out.bytes;
      const DeviceQuantizedOperand device(tokens);
      product.run(device.view(), rows);
      ASSERT_EQ(product.out.bytes, wanted) << name_of(scheme);
      DevicePrepared expanded(PreparedForm::expanded, device.view());
      product.run(expanded.operand, rows);
      ASSERT_EQ(product.out.bytes, wanted) << name_of(scheme) << ", expanded";
    }
  }
}

TEST_F(CudaGroupedRowsFolded, FoldedRowsAreThoseOfCopies) {
  for (const Scheme scheme : {Scheme::mxfp8_e4m3, Scheme::mxfp6_e3m2, Scheme::mxfp4}) {
    const auto rows = rows_of(11);
    QuantizedOperand tokens(scheme, {1, 11, 160}, ScaleLayout::row_major);
    tokens.quantize(normal_values(1));
    QuantizedOperand copies = copies_of(tokens, rows);
    Product product(Scheme::mxfp4, 160);
    product.options.precision = GemmPrecision::folded;
    product.run(DeviceQuantizedOperand(copies).view());
    const std::vector<std::uint8_t> wanted = product.out.bytes;
    const DeviceQuantizedOperand device(tokens);
    product.run(device.view(), rows);
    ASSERT_EQ(product.out.bytes, wanted) << name_of(scheme);
    DevicePrepared folded(PreparedForm::folded, device.view());
    product.run(folded.operand, rows);
    ASSERT_EQ(product.out.bytes, wanted) << name_of(scheme) << ", folded";
    folded.operand.source.codes = folded.operand.source.scales = nullptr;
    product.run(folded.operand, rows);
    ASSERT_EQ(product.out.bytes, wanted) << name_of(scheme) << ", without its source";
  }
}

TEST_F(CudaGroupedRows, WrongRowsBecomeNan) {
  for (const bool is_plain : {true, false}) {
    auto rows = rows_of(11);
    rows[5] = 11;
    rows[20] = -2;
    PlainTensor plain(DType::bfloat16, {1, 11, 64});
    plain.fill(normal_values(1));
    QuantizedOperand q(Scheme::nvfp4, {1, 11, 64}, ScaleLayout::swizzled);
    q.quantize(normal_values(1));
    const DevicePlainTensor device_plain(plain);
    const DeviceQuantizedOperand device_q(q);
    Product product(Scheme::mxfp4, 64);
    is_plain ? product.run(device_plain.view(), rows) : product.run(device_q.view(), rows);
    for (std::int64_t i = 0; i < 38; ++i) {
      EXPECT_EQ(std::isnan(product.out.value(0, i, 3)), i == 5 || i == 20) << i;
    }
  }
}

}  // namespace
}  // namespace mxkern
