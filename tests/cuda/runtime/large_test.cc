// tests/cuda/runtime/large_test.cc: a tensor of more than 2^31 elements, against the CPU in places.
#include <algorithm>
#include <optional>

#include "mxkern/mxkern.h"
#include "tests/support/compare_quantized.h"
#include "tests/support/cuda/memory.h"

namespace mxkern {
namespace {

using namespace test;

// Rows repeat with this period, so that any place can be computed on the host.
constexpr std::int64_t period = 96;

class CudaLarge : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total));
    if (free < (std::size_t{14} << 30)) GTEST_SKIP() << "less than 14 GiB of memory are free";
    fill_mixed(pattern_, 1, false);
    x_.emplace(static_cast<std::size_t>(shape_.size()) * 2);
    std::int64_t filled = std::min(period, shape_.rows);
    const std::size_t row_bytes = static_cast<std::size_t>(shape_.columns) * 2;
    check_cuda(cudaMemcpy(x_->data(), pattern_.bytes().data(), period * row_bytes,
                          cudaMemcpyHostToDevice));
    while (filled < shape_.rows) {
      const std::int64_t count = std::min(filled, shape_.rows - filled);
      check_cuda(cudaMemcpy(x_->data() + filled * row_bytes, x_->data(), count * row_bytes,
                            cudaMemcpyDeviceToDevice));
      filled += count;
    }
  }

  Buffer x() { return Buffer::dense(x_->data(), DType::bfloat16, shape_, first_cuda_device); }

  // Some rows and columns of x on the host.
  Tensor part(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
    Tensor result(DType::bfloat16, {1, rows, columns});
    result.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
      result.set(b, r, c, pattern_.get(0, (row + r) % period, column + c));
    });
    return result;
  }

  // Lines [first, first + lines) of q, elements [from, from + columns), as a tensor of their own.
  Quantized lines_of(const BlockScaled& q, std::int64_t first, std::int64_t lines,
                     std::int64_t from, std::int64_t columns) {
    Quantized result(q.scheme, {1, lines, columns}, ScaleLayout::row_major);
    const int block = facts_of(q.scheme).block;
    const std::int64_t bytes = code_row_bytes(q.scheme, columns);
    const std::int64_t row_bytes = code_row_bytes(q.scheme, q.shape.columns);
    const std::int64_t start = from / block * facts_of(q.scheme).block_bytes;
    check_cuda(cudaMemcpy2D(result.codes.data(), bytes, q.codes + first * row_bytes + start,
                            row_bytes, bytes, lines, cudaMemcpyDeviceToHost));
    const std::int64_t blocks = ceil_div(q.shape.columns, block);
    const std::int64_t own = ceil_div(columns, block);
    check_cuda(cudaMemcpy2D(result.scales.data(), own, q.scales + first * blocks + from / block,
                            blocks, own, lines, cudaMemcpyDeviceToHost));
    return result;
  }

  Shape shape_{1, 65555, 32768};
  Tensor pattern_{DType::bfloat16, {1, period, 32768}};
  std::optional<DeviceBytes> x_;
};

TEST_F(CudaLarge, RowsColumnsAndBack) {
  ASSERT_GT(shape_.size(), std::int64_t{1} << 31);
  const Scheme scheme = Scheme::mxfp8_e4m3;
  const Shape turned = shape_.transposed();
  const auto sizes = BlockScaled::sizes(scheme, shape_, ScaleLayout::row_major);
  const auto turned_sizes = BlockScaled::sizes(scheme, turned, ScaleLayout::row_major);
  DeviceBytes codes(sizes.codes), scales(sizes.scales);
  DeviceBytes turned_codes(turned_sizes.codes), turned_scales(turned_sizes.scales);
  BlockScaled rows{scheme,        shape_,  ScaleLayout::row_major, codes.data(),
                   scales.data(), nullptr, first_cuda_device};
  BlockScaled columns{
      scheme,  turned,           ScaleLayout::row_major, turned_codes.data(), turned_scales.data(),
      nullptr, first_cuda_device};
  quantize_both(x(), rows, columns);
  const std::int64_t last_row = shape_.rows - 19, last_column = shape_.columns - 64;
  for (const std::int64_t row : {std::int64_t{0}, std::int64_t{65535}, last_row}) {
    for (const std::int64_t column : {std::int64_t{0}, last_column}) {
      Tensor host = part(row, 19, column, 64);
      Quantized wanted(scheme, host.shape(), ScaleLayout::row_major);
      quantize(host.buffer(), wanted.out());
      ASSERT_TRUE(same_bytes(lines_of(rows, row, 19, column, 64), wanted))
          << "rows at " << row << ", " << column;
    }
  }
  for (const std::int64_t column : {std::int64_t{0}, last_column}) {
    const std::int64_t row = 65536;  // the last blocks along the rows, the last one short
    Tensor host = part(row, 19, column, 64);
    Quantized wanted(scheme, {1, 64, 19}, ScaleLayout::row_major);
    quantize_columns(host.buffer(), wanted.out());
    ASSERT_TRUE(same_bytes(lines_of(columns, column, 64, row, 19), wanted))
        << "columns at " << row << ", " << column;
  }
  // Row kernels have a grid of their own.
  check_cuda(cudaMemset(codes.data(), 0xCD, sizes.codes));
  quantize(x(), rows);
  Tensor host = part(last_row, 19, last_column, 64);
  Quantized wanted(scheme, host.shape(), ScaleLayout::row_major);
  quantize(host.buffer(), wanted.out());
  ASSERT_TRUE(same_bytes(lines_of(rows, last_row, 19, last_column, 64), wanted));

  Buffer out = x();  // over the input: it is done with
  dequantize(rows, out);
  Tensor decoded(DType::bfloat16, host.shape()), wanted_decoded(DType::bfloat16, host.shape());
  dequantize(wanted.out(), wanted_decoded.buffer());
  check_cuda(cudaMemcpy2D(decoded.bytes().data(), 128,
                          x_->data() + (last_row * shape_.columns + last_column) * 2,
                          shape_.columns * 2, 128, 19, cudaMemcpyDeviceToHost));
  decoded.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
    if (HasFatalFailure()) return;
    ASSERT_EQ(decoded.bits(b, r, c), wanted_decoded.bits(b, r, c)) << "at " << r << ", " << c;
  });
}

TEST_F(CudaLarge, AmaxOfTheLastElement) {
  const std::uint16_t bits = from_float<bfloat16>(0x1.8p126f).bits;
  check_cuda(cudaMemcpy(x_->data() + (shape_.size() - 1) * 2, &bits, 2, cudaMemcpyHostToDevice));
  DeviceFloat amax;
  tensor_amax(x(), amax.address());
  EXPECT_EQ(amax.value(), 0x1.8p126f);
}

// One row of more than 2^31 elements.
TEST_F(CudaLarge, OneRow) {
  const Scheme scheme = Scheme::mxfp4;
  const Shape shape{1, 1, shape_.size() - 5};
  const auto sizes = BlockScaled::sizes(scheme, shape, ScaleLayout::row_major);
  DeviceBytes codes(sizes.codes), scales(sizes.scales);
  BlockScaled q{scheme,        shape,   ScaleLayout::row_major, codes.data(),
                scales.data(), nullptr, first_cuda_device};
  quantize(Buffer::dense(x_->data(), DType::bfloat16, shape, first_cuda_device), q);
  const std::int64_t from = (shape_.rows - 1) * shape_.columns;
  const std::int64_t count = shape.columns - from;
  Tensor host = part(shape_.rows - 1, 1, 0, count);
  Quantized wanted(scheme, host.shape(), ScaleLayout::row_major);
  quantize(host.buffer(), wanted.out());
  ASSERT_TRUE(same_bytes(lines_of(q, 0, 1, from, count), wanted));
}

}  // namespace
}  // namespace mxkern
