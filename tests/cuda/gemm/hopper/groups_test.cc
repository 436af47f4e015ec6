// tests/cuda/gemm/hopper/groups_test.cc: grouped products on Hopper of folded and of expanded
// rows against sums in double precision: all tiles, and groups that end anywhere in them.
#include "cuda/gemm/hopper/groups.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "cuda/operands/fold.h"
#include "tests/support/cuda/grouped_product.h"
#include "tests/support/cuda/hopper_test.h"

namespace mxkern {
namespace {

using namespace test;
using GroupedSm90 = HopperTest;

constexpr Scheme foldable[] = {Scheme::mxfp8_e4m3, Scheme::mxfp8_e5m2, Scheme::mxfp6_e2m3,
                               Scheme::mxfp6_e3m2, Scheme::mxfp4};

GroupedProduct<QuantizedOperand> folded_product(Scheme left, Shape x, Scheme scheme, std::int64_t n,
                                                std::vector<std::int32_t> ends, DType dtype,
                                                std::int64_t gap = 0) {
  GroupedProduct<QuantizedOperand> p(QuantizedOperand(left, x, ScaleLayout::row_major), scheme, n,
                                     std::move(ends), dtype, gap);
  p.precision = GemmPrecision::folded;
  return p;
}

// Groups of less than a tile's rows, of more, of none, of one row, and rows without a group; the
// second thread block of a cluster has fewer columns, or none.
TEST_F(GroupedSm90, EveryTile) {
  const std::pair<Scheme, Scheme> pairs[] = {{Scheme::mxfp8_e4m3, Scheme::mxfp8_e4m3},
                                             {Scheme::mxfp8_e4m3, Scheme::mxfp4},
                                             {Scheme::mxfp4, Scheme::mxfp6_e2m3},
                                             {Scheme::mxfp8_e5m2, Scheme::mxfp6_e3m2},
                                             {Scheme::mxint8, Scheme::mxfp4}};
  int turn = 0;
  for (const auto& [left, right] : pairs) {
    for (const int columns : {256, 192, 128}) {
      for (const int cluster : {1, 2}) {
        ++turn;
        const bool is_folded = left != Scheme::mxint8;
        const int height = turn % 3 == 0 ? 64 : 128;
        const std::int64_t n = columns + (cluster == 1 ? 41 : turn % 4 == 0 ? -24 : 72);
        const std::int64_t k = 100 + 60 * (turn % 7);  // every number of steps modulo the stages
        const DType dtype = all_dtypes[turn % 3];
        auto p = folded_product(left, {1, 218, k}, right, n, {0, 70, 71, 71, 203}, dtype,
                                turn % 4 == 0   ? 8
                                : turn % 4 == 1 ? 3
                                                : 0);
        if (!is_folded) p.precision = GemmPrecision::exact;
        p.fill(static_cast<std::uint64_t>(turn));
        if (turn % 2 == 0) p.add_factors_and_biases(all_dtypes[turn / 2 % 3], 0);
        p.alpha = 0.5f;
        const PlainTensor before = p.out;
        const Reference wanted = p.wanted();
        OnDevice device(p);
        const auto rows = device.rows(is_folded);
        const cuda::RowScaled &a = rows.first, &b = rows.second;
        cuda::CoreFinish finish = device.finish();
        const cuda::DeviceGroups groups = device.groups_for(finish);
        cuda::TileSm90 tile = cuda::tile_of_columns_sm90(columns, b.element, 128, n);
        tile.cluster = cluster;
        const std::string what = std::to_string(columns) + " columns, cluster " +
                                 std::to_string(cluster) + ", height " + std::to_string(height);
        expect_twice(device, wanted, what, [&] {
          cuda::multiply_sm90_grouped_by(tile, height, "test", a, b, groups, finish, {});
        });
        expect_gaps(p, before);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// By the function itself, from codes, and from what was prepared of them.
TEST_F(GroupedSm90, EveryPairThatFolds) {
  std::uint64_t seed = 0;
  for (const Scheme left : foldable) {
    for (const Scheme right : foldable) {
      ++seed;
      auto p = folded_product(left, {1, 41, 200}, right, 72, {0, 3, 3, 21, 22, 38, 38},
                              all_dtypes[seed % 3], seed % 2 == 0 ? 8 : 0);
      p.fill(seed);
      if (seed % 2 == 0) p.add_factors_and_biases(DType::bfloat16, 0);
      if (seed % 4 < 2) p.add_output(seed % 4 == 1 ? 1.0f : -0.5f);
      const Reference wanted = p.wanted();
      OnDevice device(p);
      if (seed % 3 > 0) device.prepare(PreparedForm::folded);
      if (seed % 4 > 1) device.prepare_left(PreparedForm::folded);
      device.run();
      ASSERT_TRUE(is_right(p, wanted, name_of(left)));
    }
  }
}

// Ends are read by 32 at a time; a cluster's next tile may be of a group far away.
TEST_F(GroupedSm90, ManyGroups) {
  for (const int count : {1, 31, 32, 33, 64, 100, 300}) {
    std::vector<std::int32_t> many;
    for (int i = 0; i < count; ++i) many.push_back((i + 1) / 3 * 2 + i / 40 * 30);
    const std::int64_t rows = many.back() + count % 2 * 70;
    for (const bool is_folded : {true, false}) {
      auto p = folded_product(Scheme::mxfp8_e4m3, {1, rows, 64}, Scheme::mxfp8_e4m3, 40, many,
                              DType::float32);
      if (!is_folded) p.precision = GemmPrecision::exact;
      p.fill(static_cast<std::uint64_t>(count));
      const Reference wanted = p.wanted();
      OnDevice device(p);
      device.prepare(is_folded ? PreparedForm::folded : PreparedForm::expanded);
      device.run();
      ASSERT_TRUE(is_right(p, wanted, std::to_string(count) + " groups"));
    }
  }
}

TEST_F(GroupedSm90, WrongEndsPoisonEverything) {
  const std::vector<std::vector<std::int32_t>> wrong = {
      {5, 4, 20}, {-1, 4, 20}, {5, 6, 31}, {5, 2147483647, 20}, {-2147483647 - 1, 0, 3}};
  for (const std::vector<std::int32_t>& given : wrong) {
    auto p = folded_product(Scheme::mxfp8_e4m3, {1, 30, 64}, Scheme::mxfp4, 40, given,
                            DType::bfloat16, 8);
    p.fill(4);
    p.out.fill([](auto, auto, auto) { return 1.0; });
    OnDevice device(p);
    device.run();
    for (int row = 0; row < 30; ++row) {
      for (int column = 0; column < 40; ++column) {
        ASSERT_TRUE(std::isnan(p.out.value(0, row, column))) << row << ", " << column;
      }
    }
  }
}

// NaN of one group's weights and of a row stay there, though tiles have rows of other groups.
TEST_F(GroupedSm90, NanStaysInItsGroup) {
  for (const DType dtype : all_dtypes) {
    auto p =
        folded_product(Scheme::mxfp8_e4m3, {1, 150, 64}, Scheme::mxfp4, 40, {2, 5, 5, 149}, dtype);
    p.fill(8);
    p.b.scale(1, 4, 0) = 0xFF;
    p.b.scale(2, 5, 0) = 0xFF;
    p.a.scale(0, 7, 1) = 0xFF;
    OnDevice device(p);
    device.run();
    for (int row = 0; row < 150; ++row) {
      for (int column = 0; column < 40; ++column) {
        const bool is_nan = row == 7 || (row >= 2 && row < 5 && column == 4);
        ASSERT_EQ(std::isnan(p.out.value(0, row, column)), is_nan) << row << ", " << column;
        if (row == 149) {
          ASSERT_EQ(p.out.value(0, row, column), 0.0);
        }
      }
    }
  }
}

TEST_F(GroupedSm90, ShapesThatHaveLittle) {
  const auto expect = [](Shape x, std::int64_t n, std::vector<std::int32_t> ends) {
    auto p =
        folded_product(Scheme::mxfp8_e4m3, x, Scheme::mxfp4, n, std::move(ends), DType::float32);
    p.fill(6);
    const Reference wanted = p.wanted();
    OnDevice device(p);
    device.run();
    EXPECT_TRUE(agrees(p.out, wanted, "little"));
  };
  expect({1, 5, 0}, 7, {2, 4});
  expect({1, 5, 64}, 7, {});
  expect({1, 0, 64}, 7, {0, 0});
  expect({1, 5, 64}, 0, {2, 4});
  expect({1, 5, 64}, 7, {0, 0});
  expect({1, 1, 1}, 1, {1});
}

// Powers of two that no float has: products that are far outside of what a fold holds.
TEST_F(GroupedSm90, ExtremeScales) {
  auto p =
      folded_product(Scheme::mxfp8_e4m3, {1, 40, 64}, Scheme::mxfp4, 40, {20, 40}, DType::float32);
  p.fill(9);
  for (std::int64_t block = 0; block < 2; ++block) {
    for (std::int64_t row = 0; row < 40; ++row) p.a.scale(0, row, block) = 250;
    for (std::int64_t row = 0; row < 40; ++row) p.b.scale(1, row, block) = 3;
    for (std::int64_t row = 0; row < 40; ++row) p.b.scale(0, row, block) = row < 20 ? 20 : 2;
  }
  const Reference wanted = p.wanted();
  OnDevice device(p);
  device.run();
  EXPECT_TRUE(is_right(p, wanted, "extreme"));
}

}  // namespace
}  // namespace mxkern
