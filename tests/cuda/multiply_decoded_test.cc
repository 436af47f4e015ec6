// tests/cuda/multiply_decoded_test.cc: products whose left codes are decoded while they are
// multiplied give the bytes of those whose left operand was expanded.
#include <vector>

#include "mxkern/prepare_operand.h"
#include "tests/support/hopper_test.h"
#include "tests/support/random_bits.h"

namespace mxkern {
namespace {

using namespace test;

struct Case {
  Shape shape;
  std::int64_t n;
  DType dtype = DType::bfloat16;
  ScaleLayout layout = ScaleLayout::row_major;
  int spread = 4;  // octaves of block scales
  bool has_nan = false;
  Scheme right = Scheme::mxfp8_e4m3;
  float beta = 0.0f;
  bool shares_right = false;  // all matrices of the left operand have one on the right
};

// Any codes, under any scales.
QuantizedOperand random_operand(Scheme scheme, Shape shape, const Case& c, std::uint64_t seed) {
  QuantizedOperand operand(scheme, shape, c.layout);
  RandomBits random(seed);
  const std::int64_t blocks = ceil_div(shape.columns, std::int64_t{facts_of(scheme).block});
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      for (std::int64_t k = 0; k < shape.columns; ++k) {
        auto code = static_cast<std::uint32_t>(random.between(0, 255));
        if (code % 128 == 127) code -= 1;  // NaN
        if (facts_of(scheme).bits == 8) {
          operand.codes[static_cast<std::size_t>(operand.code_position(b, r, k) / 8)] =
              static_cast<std::uint8_t>(code);
        } else {
          operand.set_code(b, r, k, code);
        }
      }
      for (std::int64_t block = 0; block < blocks; ++block) {
        operand.scale(b, r, block) = static_cast<std::uint8_t>(120 - random.between(0, c.spread));
      }
    }
  }
  return operand;
}

class MultiplyDecoded : public HopperTest {
 protected:
  void expect_same(const Case& c, GemmPrecision precision = GemmPrecision::exact) {
    expect_same_bytes(c, precision, true);
  }

  void expect_same_bytes(const Case& c, GemmPrecision precision = GemmPrecision::exact,
                         bool must_decode = false) {
    const Shape& shape = c.shape;
    QuantizedOperand host_a = random_operand(Scheme::mxfp8_e4m3, shape, c, 1);
    const std::int64_t right_batch = c.shares_right ? 1 : shape.batch;
    QuantizedOperand host_b = random_operand(c.right, {right_batch, c.n, shape.columns}, c, 2);
    if (c.has_nan) {
      host_a.set_code(0, shape.rows / 2, shape.columns - 1, 0x7F);
      host_a.set_code(0, shape.rows - 1, 0, 0xFF);
      host_a.scale(0, 1, 0) = 0xFF;
    }
    DeviceQuantizedOperand a(host_a), b(host_b);
    GemmOptions options{.beta = c.beta, .precision = precision};
    const std::size_t size = prepared_bytes(PreparedForm::expanded, a.view().scheme, shape);
    DeviceBytes data(size);
    PreparedOperand expanded{PreparedForm::expanded, a.view(), data.data(), size};
    prepare_operand(a.view(), expanded);
    PlainTensor host_out(c.dtype, {shape.batch, shape.rows, c.n});
    if (c.beta != 0.0f) host_out.fill(normal_values(3));
    DevicePlainTensor out(host_out);
    const CudaGemmPlan plan =
        plan_gemm_cuda({a.view(), b.view(), out.view(), precision}, capabilities_);
    ASSERT_TRUE(plan.left.decodes || !must_decode) << "the case does not reach the kernel";
    ASSERT_FALSE(plan.is_in_one_kernel);
    const std::vector<std::uint8_t> got = product(a.view(), b.view(), host_out, options);
    options.precision = GemmPrecision::exact;  // what the device has to find out
    const std::vector<std::uint8_t> wanted = product(expanded, b.view(), host_out, options);
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], wanted[i]) << "byte " << i << " of [" << shape.batch << ", " << shape.rows
                                   << ", " << shape.columns << "] x " << c.n;
    }
  }

  // Rows that give every multiprocessor two of the wide tiles, and not all of the last one.
  std::int64_t rows() const { return 128 * capabilities_.processors - 7; }
};

TEST_F(MultiplyDecoded, EveryNumberOfSteps) {
  for (const std::int64_t k : {16, 32, 64, 80, 128, 208, 256, 272, 320, 512, 544}) {
    expect_same({.shape = {1, rows(), k}, .n = 504, .layout = ScaleLayout::swizzled});
    if (HasFatalFailure()) return;
  }
  for (const std::int64_t k : {128, 256, 384, 640, 768}) {
    expect_same({.shape = {1, rows(), k}, .n = 504});
    if (HasFatalFailure()) return;
  }
}

TEST_F(MultiplyDecoded, ManyTiles) {
  expect_same({.shape = {1, rows(), 384}, .n = 1000});
  expect_same({.shape = {1, rows(), 400}, .n = 1024, .layout = ScaleLayout::swizzled});
}

// A row of blocks under the largest scale and the smallest, which adds nothing.
TEST_F(MultiplyDecoded, ScalesAsFarApartAsCanBe) {
  const Shape shape{1, rows(), 256};
  const Case c{.shape = shape, .n = 504, .spread = 0};
  QuantizedOperand host_a = random_operand(Scheme::mxfp8_e4m3, shape, c, 1);
  QuantizedOperand host_b = random_operand(Scheme::mxfp8_e4m3, {1, c.n, 256}, c, 2);
  for (std::int64_t block = 0; block < 8; ++block) {
    host_a.scale(0, 5, block) = block % 2 == 0 ? 0 : 254;
    host_a.scale(0, 6, block) = 0;
  }
  DeviceQuantizedOperand a(host_a), b(host_b);
  const GemmOptions options{.precision = GemmPrecision::exact};
  const std::size_t size = prepared_bytes(PreparedForm::expanded, a.view().scheme, shape);
  DeviceBytes data(size);
  PreparedOperand expanded{PreparedForm::expanded, a.view(), data.data(), size};
  prepare_operand(a.view(), expanded);
  const PlainTensor host_out(DType::float32, {1, shape.rows, c.n});
  EXPECT_TRUE(product(a.view(), b.view(), host_out, options) ==
              product(expanded, b.view(), host_out, options));
}

TEST_F(MultiplyDecoded, OutputsLayoutsAndSpreads) {
  for (const DType dtype : all_dtypes) {
    expect_same({.shape = {1, rows(), 256}, .n = 510, .dtype = dtype, .beta = 0.5f});
    if (HasFatalFailure()) return;
  }
  expect_same({.shape = {1, rows(), 1056}, .n = 512, .layout = ScaleLayout::swizzled});
  expect_same({.shape = {1, rows(), 128}, .n = 504, .right = Scheme::nvfp4});
  for (const int spread : {0, 20, 115}) {
    expect_same(
        {.shape = {1, rows(), 288}, .n = 504, .layout = ScaleLayout::swizzled, .spread = spread});
    if (HasFatalFailure()) return;
  }
}

TEST_F(MultiplyDecoded, Batches) {
  expect_same({.shape = {3, rows() / 3 - 40, 96}, .n = 505, .layout = ScaleLayout::swizzled});
  expect_same({.shape = {3, rows() / 3 - 40, 128}, .n = 505, .shares_right = true});
  expect_same({.shape = {3, rows() / 384 * 128, 96},
               .n = 505,
               .layout = ScaleLayout::swizzled,
               .shares_right = true});
}

// Which tile the product has, and which tiles are divided along K, follows from all rows: those of
// one matrix alone would ask for decoded codes, whose tiles are divided in another way.
TEST_F(MultiplyDecoded, BatchesWithOneRightOperandHaveTheTilesOfOneMatrix) {
  expect_same_bytes({.shape = {2, 260, 4096}, .n = 8704, .shares_right = true});
  expect_same_bytes({.shape = {8, 130, 2048}, .n = 4096, .shares_right = true});
  expect_same_bytes({.shape = {4, 40, 2048}, .n = 8192, .shares_right = true});
}

TEST_F(MultiplyDecoded, NanStaysInItsRow) {
  for (const DType dtype : {DType::bfloat16, DType::float32}) {
    expect_same({.shape = {1, rows(), 384}, .n = 504, .dtype = dtype, .has_nan = true});
  }
}

// Rows too wide to be folded, so that the device chooses the exact product; of a batch, which has
// a kernel for each.
TEST_F(MultiplyDecoded, BehindAGate) {
  expect_same({.shape = {3, rows() / 3 - 40, 384}, .n = 504, .spread = 40},
              GemmPrecision::automatic);
}

}  // namespace
}  // namespace mxkern
