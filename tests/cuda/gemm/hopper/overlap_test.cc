// tests/cuda/gemm/hopper/overlap_test.cc: products that make rows of their operands ready while
// they are under way give the bytes of those whose operands were prepared.
#include <ostream>
#include <vector>

#include "mxkern/prepare_operand.h"
#include "tests/support/cuda/hopper_test.h"
#include "tests/support/random_bits.h"

namespace mxkern {
namespace {

using namespace test;

struct Case {
  std::int64_t m, n, k;
  ScaleLayout layout = ScaleLayout::row_major;
  DType dtype = DType::bfloat16;
  int spread = 4;  // octaves of block scales
  bool has_nan = false;
  bool left_is_late = true, right_is_late = true;
  int times = 1;
  bool on_two_streams = false;
  bool has_late_columns = false;
  PreparedForm form = PreparedForm::expanded;  // or folded
  Scheme right = Scheme::mxfp8_e4m3;

  GemmPrecision precision() const {
    return form == PreparedForm::folded ? GemmPrecision::folded : GemmPrecision::exact;
  }
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "[" << c.m << ", " << c.k << "] x [" << c.n << ", " << c.k << "] to "
             << name_of(c.dtype) << ", " << name_of(c.layout) << ", spread " << c.spread
             << ", late: " << (c.left_is_late ? "left " : "") << (c.right_is_late ? "right" : "")
             << ", " << name_of(c.form) << ", right " << name_of(c.right);
}

// Any codes, under any scales, with rows and blocks of zeros.
QuantizedOperand random_operand(Scheme scheme, std::int64_t rows, const Case& c,
                                std::uint64_t seed) {
  QuantizedOperand operand(scheme, {1, rows, c.k}, c.layout);
  RandomBits random(seed);
  for (auto& code : operand.codes) {
    code = static_cast<std::uint8_t>(random.between(0, 255));
    if (scheme == Scheme::mxfp8_e4m3 && code % 128 == 127) code -= 1;  // NaN
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t block = 0; block < c.k / 32; ++block) {
      operand.scale(0, row, block) = static_cast<std::uint8_t>(120 - random.between(0, c.spread));
      if (row % 61 != 7 && (row + block) % 50 != 3) continue;
      for (int i = 0; i < 32; ++i) operand.set_code(0, row, block * 32 + i, i % 2 * 0x80u);
      operand.scale(0, row, block) = 0;
    }
  }
  if (c.has_nan && scheme == Scheme::mxfp8_e4m3) {
    operand.set_code(0, rows - 1, 0, 0x7F);
    operand.set_code(0, rows / 2, c.k - 1, 0xFF);
    operand.scale(0, rows - 3, 1) = 0xFF;
    for (std::int64_t block = 0; block < c.k / 32; ++block)
      operand.scale(0, rows - 5, block) = 0xFF;
  }
  return operand;
}

class LateRows : public HopperTest {
 protected:
  void expect_same(const Case& c) {
    QuantizedOperand host_a = random_operand(Scheme::mxfp8_e4m3, c.m, c, 1);
    QuantizedOperand host_b = random_operand(c.right, c.n, c, 2);
    DeviceQuantizedOperand a(host_a), b(host_b);
    const GemmOptions options{.precision = c.precision()};
    const PreparedForm form = c.form;
    const auto bytes_of = [&](const BlockScaled& q) {
      return prepared_bytes(form, q.scheme, q.shape);
    };
    DeviceBytes a_data(bytes_of(a.view())), b_data(bytes_of(b.view()));
    PreparedOperand a_ready{form, a.view(), a_data.data(), bytes_of(a.view())};
    PreparedOperand b_ready{form, b.view(), b_data.data(), bytes_of(b.view())};
    prepare_operand(a.view(), a_ready);
    prepare_operand(b.view(), b_ready);
    PlainTensor host_out(c.dtype, {1, c.m, c.n});
    const std::vector<std::uint8_t> wanted = product(a_ready, b_ready, host_out, options);

    const GemmOperand left = c.left_is_late ? GemmOperand(a.view()) : GemmOperand(a_ready);
    const GemmRightOperand right =
        c.right_is_late ? GemmRightOperand(b.view()) : GemmRightOperand(b_ready);
    DevicePlainTensor out(host_out);
    const CudaGemmPlan plan =
        plan_gemm_cuda({left, right, out.view(), c.precision()}, capabilities_);
    ASSERT_TRUE(plan.left.first_rows > 0 || plan.right.first_rows > 0) << c << ": nothing is late";
    ASSERT_TRUE(plan.left.first_rows < c.m && plan.right.first_rows < c.n);
    ASSERT_EQ(plan.left.first_columns > 0, c.has_late_columns) << c;
    for (int turn = 0; turn < c.times; ++turn) {
      for (const auto& got : products(left, right, host_out, options, c.on_two_streams)) {
        for (std::size_t i = 0; i < got.size(); ++i) {
          ASSERT_EQ(got[i], wanted[i]) << "byte " << i << " of " << c << ", turn " << turn;
        }
      }
    }
  }
};

TEST_F(LateRows, EveryNumberOfColumns) {
  for (const std::int64_t k : {4096, 4224, 4352, 4480, 8064, 8192}) {
    expect_same({.m = 3500, .n = 4104, .k = k});
    if (HasFatalFailure()) return;
  }
}

TEST_F(LateRows, LongRowsOnTheLeft) {
  expect_same({.m = 5000, .n = 4608, .k = 10368, .right_is_late = false});
  expect_same(
      {.m = 5200, .n = 4600, .k = 12288, .layout = ScaleLayout::swizzled, .right_is_late = false});
}

TEST_F(LateRows, ShapesAndSides) {
  const std::pair<std::int64_t, std::int64_t> shapes[] = {
      {6200, 4100}, {2050, 7000}, {3050, 6000}, {3900, 6000}, {4096, 4097}};
  for (const auto& [m, n] : shapes) {
    for (const int sides : {1, 2, 3}) {
      Case c{.m = m, .n = n, .k = 4096, .layout = all_scale_layouts[sides % 2]};
      c.left_is_late = sides % 2 == 1;
      c.right_is_late = sides / 2 == 1;
      expect_same(c);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(LateRows, OutputsSpreadsAndNan) {
  for (const DType dtype : all_dtypes) {
    for (const int spread : {0, 12, 115}) {
      expect_same({.m = 3900,
                   .n = 4000,
                   .k = 4096,
                   .layout = all_scale_layouts[spread == 12],
                   .dtype = dtype,
                   .spread = spread,
                   .has_nan = spread != 0});
      if (HasFatalFailure()) return;
    }
    // On the left: with right rows that are late the left ones are decoded.
    expect_same({.m = 5000,
                 .n = 4608,
                 .k = 4096,
                 .dtype = dtype,
                 .spread = 115,
                 .has_nan = true,
                 .right_is_late = false});
    if (HasFatalFailure()) return;
  }
}

TEST_F(LateRows, ManyTimes) { expect_same({.m = 4100, .n = 4096, .k = 4096, .times = 20}); }

Case folded(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {.m = m, .n = n, .k = k, .form = PreparedForm::folded};
}

TEST_F(LateRows, FoldedOfEveryNumberOfColumns) {
  for (const std::int64_t k : {4096, 4224, 5248}) {
    expect_same(folded(8001, 4228, k));
    if (HasFatalFailure()) return;
  }
  Case two_turns = folded(2048, 4096, 8320);
  two_turns.right_is_late = false;
  expect_same(two_turns);
}

// Of the first rows the last columns are late as well.
TEST_F(LateRows, FoldedColumns) {
  for (const std::int64_t k : {10368, 12288, 14336}) {
    for (const int spread : {0, 115}) {
      Case c = folded(k == 12288 ? 2040 : 2048, 4096, k);
      c.right_is_late = false;
      c.layout = all_scale_layouts[k == 12288];
      c.spread = spread;
      c.has_nan = spread != 0;
      c.times = k == 14336 ? 10 : 1;
      c.has_late_columns = true;
      expect_same(c);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(LateRows, FoldedShapesSidesAndLayouts) {
  const std::pair<std::int64_t, std::int64_t> shapes[] = {{5900, 4352}, {5000, 5120}, {6300, 4096}};
  for (const auto& [m, n] : shapes) {
    for (const bool right_is_late : {false, true}) {
      Case c = folded(m, n, 4096);
      c.right_is_late = right_is_late;  // folded in the call, all of it ahead
      c.right = right_is_late ? Scheme::mxfp6_e2m3 : Scheme::mxfp8_e4m3;
      c.layout = all_scale_layouts[right_is_late];
      expect_same(c);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(LateRows, FoldedOnTheRight) {
  const std::pair<std::int64_t, std::int64_t> shapes[] = {
      {4096, 4096}, {2000, 6100}, {1024, 8192}, {3000, 5600}, {4000, 8201}};
  for (const auto& [m, n] : shapes) {
    for (const bool left_is_folded : {false, true}) {
      Case c = folded(m, n, left_is_folded ? 4096 : 4736);
      c.left_is_late = left_is_folded;  // folded in the call, all of it ahead
      c.layout = all_scale_layouts[left_is_folded];
      expect_same(c);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(LateRows, FoldedSpreadsAndNan) {
  // Rows of the left operand are late, and of the right one.
  for (const auto& [m, n] : {std::pair{6000, 4300}, {3000, 5600}}) {
    for (const int spread : {0, 9, 115}) {
      Case c = folded(m, n, 4096);
      c.dtype = spread == 9 ? DType::float32 : DType::bfloat16;
      c.spread = spread;
      c.has_nan = spread != 0;
      expect_same(c);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(LateRows, FoldedManyTimes) {
  for (const std::int64_t m : {6300, 2048}) {
    Case c = folded(m, 4096, 4096);
    c.times = 20;
    expect_same(c);
    if (HasFatalFailure()) return;
  }
}

// Thread blocks of two products share the device, whichever of them start first.
TEST_F(LateRows, OnTwoStreamsAtOnce) {
  for (const PreparedForm form : {PreparedForm::expanded, PreparedForm::folded}) {
    for (const bool left_is_late : {true, false}) {
      // Few turns of the exact product would decode their left rows.
      const std::int64_t n = form == PreparedForm::expanded ? 8192 : 4096;
      Case c{.m = 4096, .n = n, .k = 4096, .times = 3, .on_two_streams = true, .form = form};
      c.left_is_late = left_is_late;
      c.right_is_late = !left_is_late;
      expect_same(c);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(LateRows, ColumnsOnTwoStreamsAtOnce) {
  Case c = folded(2048, 4096, 14336);
  c.right_is_late = false;
  c.times = 3;
  c.on_two_streams = true;
  c.has_late_columns = true;
  expect_same(c);
}

}  // namespace
}  // namespace mxkern
