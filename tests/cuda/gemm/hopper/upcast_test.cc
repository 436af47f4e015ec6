// tests/cuda/gemm/hopper/upcast_test.cc: products that decode codes of an operand while they
// multiply give the bytes of those whose operand was expanded.
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/support/cuda/prepared.h"
#include "tests/support/cuda/hopper_test.h"
#include "tests/support/random_bits.h"

namespace mxkern {
namespace {

using namespace test;

struct Case {
  Shape shape;
  std::int64_t n;
  DType dtype = DType::bfloat16;
  ScaleLayout layout = ScaleLayout::row_major;
  int spread = 4;   // octaves of block scales
  int scale = 120;  // the largest of what is decoded; the other operand's is 240 less this
  bool has_nan = false;
  Scheme right = Scheme::mxfp8_e4m3;
  float beta = 0.0f;
  bool shares_right = false;  // all matrices of the left operand have one on the right
  bool has_bias = false;
  bool is_divided = false, has_late_rows = false;  // what the case has to have
  bool decodes_right = false;                      // instead of the left operand
  Scheme left = Scheme::mxfp8_e4m3;
};

// The transpose of a product that decodes the left operand, in up to 8 columns less, as many as are
// stored at once. Nothing is added to its output.
Case transposed(Case c) {
  const std::int64_t columns = c.shape.rows / 8 * 8;
  c.shape.rows = c.n;
  c.n = columns;
  c.beta = 0.0f;
  c.decodes_right = true;
  return c;
}

// Any codes, under any scales.
QuantizedOperand random_operand(Scheme scheme, Shape shape, const Case& c, std::uint64_t seed,
                                int largest = 120) {
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
        operand.scale(b, r, block) =
            static_cast<std::uint8_t>(largest - random.between(0, c.spread));
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

  void expect_same_both(const Case& c) {
    expect_same(c);
    if (!HasFatalFailure()) expect_same(transposed(c));
  }

  void expect_same_bytes(const Case& c, GemmPrecision precision = GemmPrecision::exact,
                         bool must_decode = false) {
    const Shape& shape = c.shape;
    const int other = 240 - c.scale;
    QuantizedOperand a = random_operand(c.left, shape, c, 1, c.decodes_right ? other : c.scale);
    const std::int64_t right_batch = c.shares_right ? 1 : shape.batch;
    QuantizedOperand b = random_operand(c.right, {right_batch, c.n, shape.columns}, c, 2,
                                        c.decodes_right ? c.scale : other);
    if (c.has_nan) {
      QuantizedOperand& decoded = c.decodes_right ? b : a;
      const std::int64_t rows = c.decodes_right ? c.n : shape.rows;
      decoded.set_code(0, rows / 2, shape.columns - 1, 0x7F);
      decoded.set_code(0, rows - 1, 0, 0xFF);
      decoded.scale(0, 1, 0) = 0xFF;
    }
    expect_same_operands(a, b, c, precision, must_decode);
  }

  // Fills `result`, where it is not null.
  void expect_same_operands(QuantizedOperand& host_a, QuantizedOperand& host_b, const Case& c,
                            GemmPrecision precision, bool must_decode,
                            std::vector<std::uint8_t>* result = nullptr) {
    const Shape& shape = c.shape;
    DeviceQuantizedOperand a(host_a), b(host_b);
    DevicePrepared expanded(PreparedForm::expanded, c.decodes_right ? b.view() : a.view());
    PlainTensor host_out(c.dtype, {shape.batch, shape.rows, c.n});
    if (c.beta != 0.0f) host_out.fill(normal_values(3));
    DevicePlainTensor out(host_out);
    const CudaGemmPlan plan = plan_gemm_cuda(
        {a.view(), b.view(), out.view(), GemmOptions{.beta = c.beta, .precision = precision}},
        capabilities_);
    ASSERT_TRUE((c.decodes_right ? plan.right : plan.left).decodes || !must_decode)
        << "the case does not reach the kernel";
    ASSERT_FALSE(plan.is_in_one_kernel);
    EXPECT_TRUE(plan.part_bytes > 0 || !c.is_divided) << "no tile is divided along K";
    EXPECT_TRUE((c.decodes_right ? plan.left : plan.right).first_rows > 0 || !c.has_late_rows)
        << "no row is late";
    GemmOptions options{.beta = c.beta, .precision = precision};
    PlainTensor host_bias(DType::float32, {1, 1, c.n});
    host_bias.fill(normal_values(4));
    DevicePlainTensor bias(host_bias);
    const Buffer bias_view = bias.view();
    if (c.has_bias) options.bias = &bias_view;
    const std::vector<std::uint8_t> got = product(a.view(), b.view(), host_out, options);
    options.precision = GemmPrecision::exact;  // what the device has to find out
    const std::vector<std::uint8_t> wanted =
        c.decodes_right ? product(a.view(), expanded.operand, host_out, options)
                        : product(expanded.operand, b.view(), host_out, options);
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], wanted[i]) << "byte " << i << " of [" << shape.batch << ", " << shape.rows
                                   << ", " << shape.columns << "] x " << c.n;
    }
    if (result != nullptr) *result = got;
  }

  // Rows that give every multiprocessor two of the wide tiles, and not all of the last one.
  std::int64_t rows() const { return 128 * capabilities_.processors - 7; }
};

TEST_F(MultiplyDecoded, EveryNumberOfSteps) {
  for (const std::int64_t k : {16, 32, 64, 80, 128, 192, 208, 256, 272, 320, 448, 512, 544}) {
    expect_same_both({.shape = {1, rows(), k}, .n = 504, .layout = ScaleLayout::swizzled});
    if (HasFatalFailure()) return;
  }
  for (const std::int64_t k : {128, 256, 384, 640, 768}) {
    expect_same_both({.shape = {1, rows(), k}, .n = 504});
    if (HasFatalFailure()) return;
  }
}

TEST_F(MultiplyDecoded, ManyTiles) {
  expect_same_both({.shape = {1, rows(), 384}, .n = 1000});
  expect_same_both({.shape = {1, rows(), 400}, .n = 1024, .layout = ScaleLayout::swizzled});
}

// A tile of few rows leaves registers and shared memory of the others as they were.
TEST_F(MultiplyDecoded, LowTiles) {
  const std::int64_t n = 256 * capabilities_.processors - 8;
  Case c{.shape = {1, 200, 400}, .n = n, .layout = ScaleLayout::swizzled};
  c.right = Scheme::mxint8;  // has to be expanded
  expect_same(c);
  c.shape.columns = 384;
  c.layout = ScaleLayout::row_major;
  expect_same(c);
  std::swap(c.left, c.right);
  c.decodes_right = true;
  c.n = 560;
  c.shape.rows = capabilities_.processors / 5 * 256;  // a turn of tiles, five of them to the right
  expect_same(c);
  c.shape.columns = 400;
  c.layout = ScaleLayout::swizzled;
  expect_same(c);
}

// The last turn's tiles have two parts and four.
TEST_F(MultiplyDecoded, DividedTiles) {
  if (capabilities_.processors != 132) GTEST_SKIP() << "tiles are divided for 132 multiprocessors";
  for (const DType dtype : {DType::bfloat16, DType::float32}) {
    Case c{.shape = {1, 1664, 2048}, .n = 4864, .dtype = dtype, .has_nan = true};
    c.is_divided = true;
    expect_same(c);
    if (HasFatalFailure()) return;
    c.shape.columns = 4096;
    c.n = 5120;
    expect_same(c);
    if (HasFatalFailure()) return;
    Case right{.shape = {1, 2048, 2048}, .n = 12800, .dtype = dtype, .has_nan = true};
    right.is_divided = right.decodes_right = true;
    expect_same(right);
    if (HasFatalFailure()) return;
  }
}

TEST_F(MultiplyDecoded, BesideLateRows) {
  if (capabilities_.processors != 132) GTEST_SKIP() << "rows are late for 132 multiprocessors";
  for (const DType dtype : {DType::bfloat16, DType::float32}) {
    Case c{.shape = {1, 5000, 4096}, .n = 4608, .dtype = dtype, .spread = 60, .has_nan = true};
    c.layout = dtype == DType::float32 ? ScaleLayout::swizzled : ScaleLayout::row_major;
    c.has_late_rows = true;
    expect_same(c);
    if (HasFatalFailure()) return;
    Case right = c;  // two turns, and three whose last tiles have fewer columns and rows
    right.decodes_right = true;
    right.shape = {1, 2048, 4096};
    right.n = 4096;
    expect_same(right);
    if (HasFatalFailure()) return;
    right.shape = {1, 2200, 4224};
    right.layout = ScaleLayout::swizzled;
    right.n = 5112;
    expect_same(right);
    if (HasFatalFailure()) return;
  }
}

// Row 5 has blocks under the largest scale, beside which those under the smallest add nothing;
// row 6 the smallest scale alone. In row 7 codes of zero lie under the largest scale, and codes
// that are subnormal numbers as far below it as elements are exact, see cuda/operands/expand.h:
// they become subnormal bfloat16. Columns take turns with two scales: float32 holds the outputs of
// rows 5 and 7 in the even ones, of rows 6 and 7 in the odd ones.
TEST_F(MultiplyDecoded, ScalesAsFarApartAsCanBe) {
  constexpr int largest = 254, exact_octaves = 130, block_codes = 32;
  const Case c{.shape = {1, rows(), 256}, .n = 504, .dtype = DType::float32, .spread = 0};
  QuantizedOperand a = random_operand(Scheme::mxfp8_e4m3, c.shape, c, 1);
  QuantizedOperand b = random_operand(Scheme::mxfp8_e4m3, {1, c.n, c.shape.columns}, c, 2);
  for (std::int64_t block = 0; block < c.shape.columns / block_codes; ++block) {
    const bool is_large = block % 2 != 0;
    a.scale(0, 5, block) = is_large ? largest : 0;
    a.scale(0, 6, block) = 0;
    a.scale(0, 7, block) = is_large ? largest : largest - exact_octaves;
    for (std::int64_t k = block * block_codes; k < (block + 1) * block_codes; ++k) {
      const auto sign = static_cast<std::uint32_t>(k % 3 == 0 ? 0x80 : 0);
      a.set_code(0, 7, k, sign | (is_large ? 0u : static_cast<std::uint32_t>(k % 7 + 1)));
    }
    for (std::int64_t j = 0; j < c.n; j += 2) b.scale(0, j, block) = 100;
  }
  std::vector<std::uint8_t> bytes;
  expect_same_operands(a, b, c, GemmPrecision::exact, true, &bytes);
  if (HasFatalFailure()) return;
  for (const std::int64_t row : {5, 6, 7}) {
    for (std::int64_t j = row == 6 ? 1 : 0; j < c.n; j += row == 7 ? 1 : 2) {
      double sum = 0.0, magnitude = 0.0;
      for (std::int64_t k = 0; k < c.shape.columns; ++k) {
        const double product = a.value(0, row, k) * b.value(0, j, k);
        sum += product;
        magnitude += std::fabs(product);
      }
      float got = 0.0f;
      std::memcpy(&got, bytes.data() + static_cast<std::size_t>(row * c.n + j) * sizeof got,
                  sizeof got);
      ASSERT_TRUE(std::isfinite(got) && magnitude > 0.0) << "row " << row << ", column " << j;
      ASSERT_LE(std::fabs(static_cast<double>(got) - sum), 0x1p-20 * magnitude)
          << "row " << row << ", column " << j << ": " << got << ", wanted " << sum;
    }
  }
}

TEST_F(MultiplyDecoded, OutputsLayoutsAndSpreads) {
  for (const DType dtype : all_dtypes) {
    expect_same_both({.shape = {1, rows(), 256}, .n = 510, .dtype = dtype, .beta = 0.5f});
    if (HasFatalFailure()) return;
    Case c{.shape = {1, rows(), 256}, .n = 504, .dtype = dtype, .has_bias = true};
    expect_same_both(c);
    if (HasFatalFailure()) return;
    c = transposed(c);
    c.scale = 12;  // powers of two whose product is no normal float: these tiles go a longer way
    expect_same(c);
    if (HasFatalFailure()) return;
  }
  expect_same_both({.shape = {1, rows(), 1056}, .n = 512, .layout = ScaleLayout::swizzled});
  expect_same({.shape = {1, rows(), 128}, .n = 504, .right = Scheme::nvfp4});
  Case with_tensor_scale = transposed({.shape = {1, rows(), 128}, .n = 504});
  with_tensor_scale.left = Scheme::nvfp4;
  expect_same(with_tensor_scale);
  for (const int spread : {0, 20, 115}) {
    expect_same_both(
        {.shape = {1, rows(), 288}, .n = 504, .layout = ScaleLayout::swizzled, .spread = spread});
    if (HasFatalFailure()) return;
  }
}

TEST_F(MultiplyDecoded, Batches) {
  const Case each{.shape = {3, rows() / 3 - 40, 96}, .n = 505, .layout = ScaleLayout::swizzled};
  expect_same_both(each);
  const Case one{.shape = {3, rows() / 3 - 40, 128}, .n = 505, .shares_right = true};
  expect_same(one);
  Case one_decoded = transposed(one);
  one_decoded.n = rows() / 8 * 8;
  one_decoded.shape.rows = 168;
  expect_same(one_decoded);
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
    Case c{.shape = {1, rows(), 384}, .n = 504, .dtype = dtype, .has_nan = true};
    expect_same_both(c);
    if (HasFatalFailure()) return;
    // The other rows' sums, bias and output are added in the same order as without.
    c.has_bias = true;
    c.beta = 0.5f;
    expect_same_both(c);
    if (HasFatalFailure()) return;
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
