// tests/cuda/gemm/hopper/fused_dispatch_test.cc: products that one kernel computes folded or exact,
// whichever the spreads ask for, give the bytes of precision folded or exact.
#include <algorithm>
#include <deque>
#include <ostream>
#include <tuple>
#include <vector>

#include "cuda/operands/fold.h"
#include "mxkern/core/math.h"
#include "tests/support/cuda/prepared.h"
#include "tests/support/cuda/hopper_test.h"
#include "tests/support/random_bits.h"

namespace mxkern {
namespace {

using namespace test;

struct Case {
  std::int64_t m, n, k;
  int left_spread = 4, right_spread = 4;  // octaves of the scales of one row; of the others 2
  ScaleLayout layout = ScaleLayout::row_major;
  bool has_nan = false;
  float beta = 0.0f;
  int times = 1;
  bool on_two_streams = false;
  std::int64_t wide_row = -1;    // of either operand; otherwise any
  bool has_zero_blocks = false;  // far below the others
  bool has_late_rows = false;
  Scheme left = Scheme::mxfp8_e4m3, right = Scheme::mxfp8_e4m3;

  bool is_narrow() const {
    return left_spread <= cuda::fold_facts(left).spread_limit &&
           right_spread <= cuda::fold_facts(right).spread_limit;
  }
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "[" << c.m << ", " << c.k << "] x [" << c.n << ", " << c.k << "], "
             << name_of(c.left) << " and " << name_of(c.right) << ", " << name_of(c.layout)
             << ", spreads " << c.left_spread << " and " << c.right_spread;
}

// Any codes; the scales of one row lie as far apart as `spread` says.
QuantizedOperand random_operand(Scheme scheme, std::int64_t rows, int spread, const Case& c,
                                std::uint64_t seed) {
  QuantizedOperand operand(scheme, {1, rows, c.k}, c.layout);
  const std::int64_t blocks = ceil_div(c.k, 32);
  RandomBits random(seed);
  for (auto& code : operand.codes) {
    code = static_cast<std::uint8_t>(random.between(0, 255));
    // What NaN and infinity have in 8 bits.
    if (scheme == Scheme::mxfp8_e4m3 && code % 128 == 127) code -= 1;
    if (scheme == Scheme::mxfp8_e5m2 && code % 128 >= 124) code -= 4;
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t block = 0; block < blocks; ++block)
      operand.scale(0, row, block) = static_cast<std::uint8_t>(120 - random.between(0, 2));
  }
  const std::int64_t any = random.between(0, static_cast<int>(rows) - 1);
  const std::int64_t wide_row = c.wide_row < 0 ? any : std::min(c.wide_row, rows - 1);
  operand.scale(0, wide_row, 0) = 121;
  operand.scale(0, wide_row, blocks - 1) = static_cast<std::uint8_t>(121 - spread);
  for (std::int64_t row = 0; c.has_zero_blocks && row < rows; row += 7) {
    const std::int64_t block = 1 + row % (c.k / 32 - 2);
    for (int i = 0; i < 32; ++i) operand.set_code(0, row, block * 32 + i, i % 2 * 0x80u);
    operand.scale(0, row, block) = static_cast<std::uint8_t>(row % 2 * 100);
  }
  if (c.has_nan) {
    operand.set_code(0, rows - 1, 0, 0x7F);
    operand.set_code(0, rows / 2, c.k - 1, 0xFF);
    operand.scale(0, rows / 3, 1) = 0xFF;
  }
  return operand;
}

class OneKernel : public HopperTest {
 protected:
  void expect_same(const Case& c) {
    QuantizedOperand host_a = random_operand(c.left, c.m, c.left_spread, c, 1);
    QuantizedOperand host_b = random_operand(c.right, c.n, c.right_spread, c, 2);
    DeviceQuantizedOperand a(host_a), b(host_b);
    const DevicePrepared a_folded(PreparedForm::folded, a.view()),
        b_folded(PreparedForm::folded, b.view()), b_expanded(PreparedForm::expanded, b.view());
    struct Way {
      GemmOperand left;
      GemmRightOperand right;
      bool has_late_rows;
    };
    const Way ways[] = {{a.view(), b.view(), c.has_late_rows},
                        {a.view(), b_folded.operand, c.has_late_rows},
                        {a_folded.operand, b_folded.operand, false},
                        {a.view(), b_expanded.operand, c.has_late_rows}};
    for (const DType dtype : {DType::bfloat16, DType::float16}) {
      if (c.has_late_rows && dtype != DType::bfloat16) continue;
      PlainTensor before(dtype, {1, c.m, c.n});
      RandomBits random(3);
      for (auto& byte : before.bytes) byte = static_cast<std::uint8_t>(random.between(0, 0x3B));
      GemmOptions options{.beta = c.beta};
      options.precision = c.is_narrow() ? GemmPrecision::folded : GemmPrecision::exact;
      const std::vector<std::uint8_t> wanted = product(a.view(), b.view(), before, options);
      options.precision = GemmPrecision::automatic;
      for (const auto& [left, right, is_late] : ways) {
        DevicePlainTensor out(before);
        const CudaGemmPlan plan =
            plan_gemm_cuda({left, right, out.view(), options.precision}, capabilities_);
        ASSERT_TRUE(plan.is_in_one_kernel) << c;
        ASSERT_EQ(plan.left.first_rows + plan.right.first_rows > 0, is_late) << c;
        for (int turn = 0; turn < c.times; ++turn) {
          for (const auto& got : products(left, right, before, options, c.on_two_streams)) {
            for (std::size_t i = 0; i < got.size(); ++i) {
              ASSERT_EQ(got[i], wanted[i])
                  << "byte " << i << " of " << c << ", " << name_of(dtype) << ", turn " << turn;
            }
          }
        }
      }
    }
  }
};

// Tiles of every size, of every height, and of every kind of division along K.
TEST_F(OneKernel, Shapes) {
  for (const auto& [m, n, k] : {std::tuple{1, 32, 128},
                                {17, 1000, 256},
                                {64, 4096, 4096},
                                {136, 2056, 384},
                                {100, 1000, 8192},
                                {192, 5120, 5120},
                                {512, 4096, 1024},
                                {512, 6144, 4096},
                                {1024, 2304, 2048},
                                {1500, 1111, 128}}) {
    for (const int spread : {8, 9}) {
      expect_same({.m = m, .n = n, .k = k, .left_spread = spread});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(OneKernel, SmallOfEveryTile) {
  for (const auto& [m, n, k] :
       {std::tuple{150, 700, 640}, {100, 9000, 128}, {129, 9000, 128}, {129, 16896, 128}}) {
    for (const int spread : {2, 20}) {
      expect_same({.m = m, .n = n, .k = k, .left_spread = spread});
      if (HasFatalFailure()) return;
    }
  }
}

// Also rows that end inside a block, and scales that are no whole words.
TEST_F(OneKernel, EveryPairOfSchemes) {
  constexpr Scheme schemes[] = {Scheme::mxfp8_e4m3, Scheme::mxfp8_e5m2, Scheme::mxfp6_e3m2,
                                Scheme::mxfp6_e2m3, Scheme::mxfp4};
  int turn = 0;
  for (const Scheme left : schemes) {
    for (const Scheme right : schemes) {
      for (const std::int64_t k : {1000, 2048}) {
        for (const int beyond : {0, 1}) {
          expect_same({.m = 100 + 60 * (turn % 3),
                       .n = 520,
                       .k = k,
                       .left_spread = cuda::fold_facts(left).spread_limit + beyond,
                       .layout = all_scale_layouts[++turn % 2],
                       .left = left,
                       .right = right});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// One row of either operand decides.
TEST_F(OneKernel, EitherOperandDecides) {
  for (const int left : {3, 30}) {
    for (const int right : {8, 9, 100}) {
      expect_same({.m = 200,
                   .n = 1100,
                   .k = 4224,
                   .left_spread = left,
                   .right_spread = right,
                   .layout = ScaleLayout::swizzled});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(OneKernel, NanAndWhatIsAddedTo) {
  for (const int spread : {2, 20}) {
    expect_same({.m = 150, .n = 700, .k = 640, .left_spread = spread, .has_nan = true});
    expect_same({.m = 150, .n = 701, .k = 640, .left_spread = spread, .beta = 0.5f});
    if (HasFatalFailure()) return;
  }
}

TEST_F(OneKernel, ManyTimes) {
  for (const int spread : {2, 20})
    expect_same({.m = 260, .n = 4096, .k = 4096, .left_spread = spread, .times = 20});
}

// Rows of one operand are folded while the product is under way; the gate asks about them before.
// Both expand operands, and wait for rows of them, at the same time.
TEST_F(OneKernel, OnTwoStreamsAtOnce) {
  for (const int spread : {0, 40}) {
    Case c{.m = 600, .n = 4096, .k = 2048, .left_spread = spread, .times = 3};
    c.on_two_streams = true;
    expect_same(c);
    if (HasFatalFailure()) return;
  }
}

TEST_F(OneKernel, LateRowsDecideAsWell) {
  if (capabilities_.processors < 132) GTEST_SKIP() << "with fewer multiprocessors no row is late";
  const auto with = [](int spread, std::int64_t wide_row) {
    return Case{.m = 4096,
                .n = 4096,
                .k = 10240,
                .left_spread = spread,
                .wide_row = wide_row,
                .has_late_rows = true};
  };
  for (const std::int64_t wide_row : {0, 1023, 1024, 4095}) {
    expect_same(with(wide_row % 2 == 0 ? 9 : 120, wide_row));
    if (HasFatalFailure()) return;
  }
  Case c = with(2, 4000);
  c.right_spread = 9;  // of a row that is late where both operands are folded in the call
  expect_same(c);
  c = with(8, 4000);
  c.has_zero_blocks = true;
  expect_same(c);
  c.has_nan = true;
  c.k = 10368;
  c.layout = ScaleLayout::swizzled;
  expect_same(c);
}

TEST_F(OneKernel, LateRowsManyTimes) {
  if (capabilities_.processors < 132) GTEST_SKIP() << "with fewer multiprocessors no row is late";
  Case c{.m = 2048, .n = 4096, .k = 14336, .left_spread = 8, .times = 3};
  c.has_late_rows = c.has_zero_blocks = true;
  expect_same(c);
}

// Calls behind one another in the same working memory, now the one product and now the other.
TEST_F(OneKernel, BehindOneAnother) {
  const Case narrow{.m = 144, .n = 2048, .k = 1024};
  Case wide = narrow;
  wide.left_spread = 12;
  QuantizedOperand host_b = random_operand(narrow.right, narrow.n, 2, narrow, 2);
  QuantizedOperand hosts[] = {random_operand(narrow.left, narrow.m, narrow.left_spread, narrow, 1),
                              random_operand(wide.left, wide.m, wide.left_spread, wide, 4)};
  DeviceQuantizedOperand b(host_b),
      a[] = {DeviceQuantizedOperand(hosts[0]), DeviceQuantizedOperand(hosts[1])};
  PlainTensor before(DType::bfloat16, {1, narrow.m, narrow.n});
  std::vector<std::uint8_t> wanted[2];
  for (const int i : {0, 1}) {
    wanted[i] = product(a[i].view(), b.view(), before,
                        {.precision = i == 0 ? GemmPrecision::folded : GemmPrecision::exact});
  }
  const GemmOptions options;
  DevicePlainTensor first_out(before);
  const std::size_t bytes = gemm_workspace_bytes(a[0].view(), b.view(), first_out.view(), options);
  DeviceCopy memory(std::vector<std::uint8_t>(bytes, 0xFF));
  constexpr int calls = 30;
  std::deque<DevicePlainTensor> outs;
  for (int i = 0; i < calls; ++i) outs.emplace_back(before);
  const auto kind = [](int i) { return i % 5 < 2 ? 1 : 0; };
  for (int i = 0; i < calls; ++i) {
    gemm(a[kind(i)].view(), b.view(), outs[static_cast<std::size_t>(i)].view(), options,
         {memory.data(), bytes});
  }
  check_cuda(cudaDeviceSynchronize());
  for (int i = 0; i < calls; ++i) {
    outs[static_cast<std::size_t>(i)].copy_to(before);
    EXPECT_TRUE(before.bytes == wanted[kind(i)]) << "call " << i;
  }
}

}  // namespace
}  // namespace mxkern
