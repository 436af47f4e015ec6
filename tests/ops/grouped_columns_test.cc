// tests/ops/grouped_columns_test.cc: grouped products whose columns belong to groups, on the CPU,
// against sums in double precision, and what is refused.
#include <limits>
#include <string>
#include <vector>

#include "mxkern/grouped_gemm.h"
#include "tests/support/cpu_grouped_product.h"

namespace mxkern {
namespace {

using namespace test;

GroupedProduct<PlainTensor> plain(DType dtype, std::int64_t m, std::int64_t k, Scheme scheme,
                                  std::int64_t n, std::vector<std::int32_t> ends, DType out,
                                  std::int64_t gap = 0) {
  return plain_product(dtype, {1, m, k}, scheme, n, std::move(ends), out, gap, GroupAxis::columns);
}
GroupedProduct<QuantizedOperand> quantized(Scheme left, std::int64_t m, std::int64_t k,
                                           Scheme scheme, std::int64_t n,
                                           std::vector<std::int32_t> ends, DType out,
                                           ScaleLayout layout = ScaleLayout::row_major) {
  return quantized_product(left, {1, m, k}, scheme, n, std::move(ends), out, layout,
                           GroupAxis::columns);
}

// Groups without columns, at the ends too, groups that begin anywhere in a tile of scales, and
// columns without a group.
const std::vector<std::int32_t> ends = {0, 32, 32, 160, 192, 608, 608, 672};

TEST(GroupedColumns, EverySchemeWithEveryKindOfColumns) {
  std::uint64_t seed = 0;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      const DType out = all_dtypes[++seed % 3];
      auto p =
          plain(dtype, 21, 700, scheme, 35, ends, out, static_cast<std::int64_t>(seed % 2) * 3);
      p.alpha = -1.5f;
      p.add_factors_and_biases(all_dtypes[seed % 3], static_cast<std::int64_t>(seed % 2) * 5);
      expect_agrees(std::move(p), seed);
    }
    for (const Scheme left : all_schemes) {
      ++seed;
      expect_agrees(
          quantized(left, 19, 700, scheme, 18, ends, DType::float32, all_scale_layouts[seed % 2]),
          seed);
    }
  }
}

TEST(GroupedColumns, TheLastGroupMayEndInsideOfABlock) {
  for (const ScaleLayout layout : all_scale_layouts) {
    expect_agrees(quantized(Scheme::nvfp4, 150, 333, Scheme::mxfp6_e2m3, 9, {64, 333, 333},
                            DType::bfloat16, layout),
                  1);
  }
  expect_agrees(plain(DType::bfloat16, 3, 9, Scheme::mxfp4, 5, {9}, DType::float32), 2);
}

TEST(GroupedColumns, ShapesThatHaveLittle) {
  expect_agrees(plain(DType::float32, 5, 0, Scheme::mxfp4, 7, {0, 0}, DType::float32), 1);
  expect_agrees(plain(DType::float32, 5, 64, Scheme::mxfp4, 7, {}, DType::bfloat16), 2);
  expect_agrees(plain(DType::float32, 0, 64, Scheme::mxfp4, 7, {32, 64}, DType::float32), 3);
  expect_agrees(plain(DType::float32, 5, 64, Scheme::mxfp4, 0, {32, 64}, DType::float32), 4);
  expect_agrees(
      quantized(Scheme::mxfp8_e5m2, 600, 2080, Scheme::nvfp4, 33, {1056, 2080}, DType::float32), 5);
}

TEST(GroupedColumns, NanStaysInItsGroup) {
  auto p = plain(DType::float32, 4, 128, Scheme::mxfp8_e4m3, 6, {32, 96, 128}, DType::float32);
  p.fill(8);
  p.b.scale(0, 4, 1) = 0xFF;
  p.a.set(0, 2, 100, std::numeric_limits<float>::quiet_NaN());
  run(p);
  for (int group = 0; group < 3; ++group) {
    for (int row = 0; row < 4; ++row) {
      for (int column = 0; column < 6; ++column) {
        const bool is_nan = (group == 1 && column == 4) || (group == 2 && row == 2);
        EXPECT_EQ(std::isnan(p.out.value(group, row, column)), is_nan)
            << group << ", " << row << ", " << column;
      }
    }
  }
}

// A group's sums do not depend on what the other groups have.
TEST(GroupedColumns, AreThoseOfEachGroupAlone) {
  auto all = quantized(Scheme::mxfp4, 20, 256, Scheme::mxfp4, 30, {96, 256}, DType::float32);
  all.fill(3);
  run(all);
  auto other = all;
  other.ends = {0, 96, 96, 256};
  other.out = PlainTensor(DType::float32, {4, 20, 30});
  run(other);
  for (int row = 0; row < 20; ++row) {
    for (int column = 0; column < 30; ++column) {
      EXPECT_EQ(all.out.value(0, row, column), other.out.value(1, row, column));
      EXPECT_EQ(all.out.value(1, row, column), other.out.value(3, row, column));
    }
  }
}

TEST(GroupedColumns, TakesPreparedOperands) {
  expect_prepared_agrees(plain(DType::bfloat16, 9, 64, Scheme::mxfp4, 6, {32, 64}, DType::float32));
}

struct Refused : RefusedProduct {
  Refused()
      : RefusedProduct{plain(DType::float32, 9, 100, Scheme::mxfp4, 6, {32, 96}, DType::float32)} {}
};

TEST(GroupedColumns, RefusesWhatDoesNotFit) {
  {
    Refused r;
    r.p.ends = {64, 32};
    r.expect("ends[1] is 32; expected 64 to 100, as ends do not decrease and a has 100 columns");
  }
  {
    Refused r;
    r.p.ends = {32, 101};
    r.expect("ends[1] is 101; expected 32 to 100");
  }
  {
    Refused r;
    r.p.ends = {-32, 100};
    r.expect("ends[0] is -32; expected 0 to 100");
  }
  {
    Refused r;
    r.p.ends = {48, 100};
    r.expect("ends[0] is 48; expected a multiple of 32, or K = 100");
  }
  {
    Refused r;
    r.groups.count = 3;
    r.expect("out has shape [2, 9, 6]; expected [3, 9, 6]");
  }
  {
    Refused r;
    r.groups.ends = nullptr;
    r.expect("groups.ends is null");
  }
  {
    Refused r;
    r.b.shape = {2, 3, 100};
    r.expect("b has a batch of 2; expected one matrix, whose columns belong to the groups");
  }
  {
    Refused r;
    std::get<Buffer>(r.a).shape.batch = 2;
    std::get<Buffer>(r.a).batch_stride = 0;
    r.expect("a has a batch of 2; expected one matrix, whose columns belong to the groups");
  }
  {
    Refused r;
    r.missing = 1;
    r.expect("ask grouped_gemm_workspace_bytes");
  }
  {
    Refused r;
    r.options.precision = GemmPrecision::automatic;
    r.expect("precision is auto; expected exact or folded");
  }
}

}  // namespace
}  // namespace mxkern
