// tests/cuda/gemm/grouped_columns_test.cc: grouped products whose columns belong to groups against
// sums in double precision: every path, all tiles on Hopper, groups that end anywhere in a step of
// them, and ends that are wrong.
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "cuda/operands/fold.h"
#include "cuda/gemm/hopper/groups.h"
#include "mxkern/grouped_gemm.h"
#include "tests/support/cuda/grouped_product.h"
#include "tests/support/cuda/ends_of_a_node.h"
#include "tests/support/cuda/hopper_test.h"

namespace mxkern {
namespace {

using namespace test;

using CudaGroupedColumns = CudaTest;
using GroupedColumnsSm90 = HopperTest;

GroupedProduct<PlainTensor> plain(DType dtype, std::int64_t m, std::int64_t k, Scheme scheme,
                                  std::int64_t n, std::vector<std::int32_t> ends, DType out,
                                  std::int64_t gap = 0) {
  return plain_product(dtype, {1, m, k}, scheme, n, std::move(ends), out, gap, GroupAxis::columns);
}

GroupedProduct<QuantizedOperand> quantized(Scheme left, std::int64_t m, std::int64_t k,
                                           Scheme scheme, std::int64_t n,
                                           std::vector<std::int32_t> ends, DType out,
                                           GemmPrecision precision = GemmPrecision::exact,
                                           std::int64_t gap = 0,
                                           ScaleLayout layout = ScaleLayout::row_major) {
  GroupedProduct<QuantizedOperand> p(QuantizedOperand(left, {1, m, k}, layout), scheme, n,
                                     std::move(ends), out, gap, layout, GroupAxis::columns);
  p.precision = precision;
  return p;
}

// Groups without columns, at the ends too, that end after one, two and three of four pieces of a
// step, and columns without a group.
const std::vector<std::int32_t> ends = {0, 32, 32, 160, 224, 608, 608, 672};

template <class Left>
void expect_every_way(GroupedProduct<Left>&& p, std::uint64_t seed) {
  p.fill(seed);
  if (seed % 2 == 0) p.add_factors_and_biases(all_dtypes[seed % 3], seed % 4 == 0 ? 3 : 0);
  if (seed % 4 < 2) p.add_output(seed % 4 == 1 ? 1.0f : -0.5f);
  p.alpha = 0.5f;
  const Reference wanted = p.wanted();
  for (const PreparedForm form : {PreparedForm::source, PreparedForm::expanded}) {
    OnDevice device(p);
    device.prepare(form);
    device.run();
    ASSERT_TRUE(is_right(p, wanted, name_of(form)));
  }
  OnDevice device(p);
  device.run_as(capabilities_of("sm_80"));
  ASSERT_TRUE(is_right(p, wanted, "portable"));
}

TEST_F(CudaGroupedColumns, EverySchemeWithEveryKindOfColumns) {
  std::uint64_t seed = 0;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      const DType out = all_dtypes[++seed % 3];
      expect_every_way(
          plain(dtype, 41, 700, scheme, 35, ends, out, static_cast<std::int64_t>(seed % 3) * 4),
          seed);
      if (HasFatalFailure()) return;
    }
    for (const Scheme left : {Scheme::mxfp8_e4m3, Scheme::mxint8, Scheme::nvfp4}) {
      ++seed;
      expect_every_way(quantized(left, 41, 677, scheme, 64, ends, DType::float32,
                                 GemmPrecision::exact, 0, all_scale_layouts[seed % 2]),
                       seed);
      if (HasFatalFailure()) return;
    }
  }
}

// More than one tile of the portable kernel, of both sizes.
TEST_F(CudaGroupedColumns, LargeTilesOfThePortableKernel) {
  for (const int count : {2, 40}) {
    std::vector<std::int32_t> many;
    for (int i = 1; i <= count; ++i) many.push_back(i / 2 * 96);
    auto p =
        plain(DType::bfloat16, 300, many.back() + 40, Scheme::mxfp4, 270, many, DType::float16);
    p.fill(5);
    const Reference wanted = p.wanted();
    OnDevice device(p);
    device.run_as(capabilities_of("sm_80"));
    ASSERT_TRUE(is_right(p, wanted, std::to_string(count) + " groups"));
  }
}

// Every number of steps modulo the stages, of which the last one has one to four pieces; tiles that
// are not whole, and a thread block of a cluster without rows or columns.
TEST_F(GroupedColumnsSm90, EveryTile) {
  const std::pair<Scheme, Scheme> pairs[] = {{Scheme::mxfp8_e4m3, Scheme::mxfp8_e4m3},
                                             {Scheme::mxfp8_e4m3, Scheme::mxfp8_e5m2},
                                             {Scheme::mxfp8_e5m2, Scheme::mxfp4},
                                             {Scheme::mxfp8_e5m2, Scheme::mxfp8_e5m2},
                                             {Scheme::mxint8, Scheme::nvfp4}};
  int turn = 0;
  for (const auto& [left, right] : pairs) {
    for (const int columns : {256, 192, 128}) {
      for (const int cluster : {1, 2}) {
        ++turn;
        const bool is_folded = left != Scheme::mxint8;
        const std::int64_t m = turn % 2 == 0 ? 218 : 70 + turn;
        const std::int64_t n = columns + (cluster == 1 ? 41 : turn % 4 == 0 ? -24 : 72);
        std::vector<std::int32_t> many = {0};
        for (int i = 0; i < 9; ++i) many.push_back(many.back() + 32 * ((turn + 3 * i * i) % 23));
        const std::int64_t k = many.back() + turn % 3 * 40;
        const DType dtype = all_dtypes[turn % 3];
        auto p = quantized(left, m, k, right, n, many, dtype,
                           is_folded ? GemmPrecision::folded : GemmPrecision::exact,
                           turn % 4 == 0   ? 8
                           : turn % 4 == 1 ? 3
                                           : 0);
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
        cuda::TileSm90 tile = cuda::tile_of_columns_sm90(columns, b.element, m, n);
        tile.cluster = cluster;
        const std::string what =
            std::to_string(columns) + " columns, cluster " + std::to_string(cluster);
        expect_twice(device, wanted, what, [&] {
          cuda::multiply_sm90_columns_by(tile, "test", a, b, groups, finish, {});
        });
        expect_gaps(p, before);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// By the function itself, from codes, and from what was prepared of them.
TEST_F(GroupedColumnsSm90, EveryPairThatFolds) {
  constexpr Scheme foldable[] = {Scheme::mxfp8_e4m3, Scheme::mxfp8_e5m2, Scheme::mxfp6_e2m3,
                                 Scheme::mxfp6_e3m2, Scheme::mxfp4};
  std::uint64_t seed = 0;
  for (const Scheme left : foldable) {
    for (const Scheme right : foldable) {
      ++seed;
      auto p = quantized(left, 41, 700, right, 72, ends, all_dtypes[seed % 3],
                         GemmPrecision::folded, seed % 2 == 0 ? 8 : 0, all_scale_layouts[seed % 2]);
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

// Many tiles of a cluster, one behind the other, with steps that are cut in many of them.
TEST_F(GroupedColumnsSm90, ManyGroups) {
  for (const int count : {1, 31, 32, 33, 100, 300}) {
    std::vector<std::int32_t> many;
    for (int i = 0; i < count; ++i) {
      many.push_back((many.empty() ? 0 : many.back()) + i * i % 7 * 32);
    }
    const std::int64_t k = many.back() + count % 2 * 72 + 8;
    for (const GemmPrecision precision : {GemmPrecision::folded, GemmPrecision::exact}) {
      auto p = quantized(Scheme::mxfp8_e4m3, 150, k, Scheme::mxfp8_e4m3, 40, many, DType::float32,
                         precision);
      p.fill(static_cast<std::uint64_t>(count));
      const Reference wanted = p.wanted();
      OnDevice device(p);
      device.run();
      ASSERT_TRUE(is_right(p, wanted, std::to_string(count) + " groups"));
    }
  }
}

template <class Left>
void expect_poisoned(const GroupedProduct<Left>& p) {
  const Shape& shape = p.out.view.shape;
  for (std::int64_t group = 0; group < shape.batch; ++group) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      for (std::int64_t column = 0; column < shape.columns; ++column) {
        ASSERT_TRUE(std::isnan(p.out.value(group, row, column)))
            << group << ", " << row << ", " << column;
      }
    }
  }
}

TEST_F(GroupedColumnsSm90, WrongEndsPoisonEverything) {
  const std::vector<std::vector<std::int32_t>> wrong = {
      {64, 32, 96}, {-32, 32, 96}, {32, 64, 128},        {32, 33, 64},
      {16, 64, 99}, {32, 98, 99},  {32, 2147483647, 96}, {-2147483647 - 1, 0, 32}};
  for (const std::vector<std::int32_t>& given : wrong) {
    for (const GemmPrecision precision : {GemmPrecision::folded, GemmPrecision::exact}) {
      auto p = quantized(Scheme::mxfp8_e4m3, 150, 99, Scheme::mxfp4, 40, given, DType::bfloat16,
                         precision, 8);
      p.fill(4);
      p.out.fill([](auto, auto, auto) { return 1.0; });
      const PlainTensor before = p.out;
      OnDevice device(p);
      device.run();
      expect_poisoned(p);
      expect_gaps(p, before);
      if (precision == GemmPrecision::exact) {
        p.out = before;
        OnDevice portable(p);
        portable.run_as(capabilities_of("sm_80"));
        expect_poisoned(p);
        expect_gaps(p, before);
      }
      if (HasFatalFailure()) return;
    }
  }
}

// NaN of the group that begins in the middle of a step, or ends there.
TEST_F(GroupedColumnsSm90, NanStaysInItsGroup) {
  for (const GemmPrecision precision : {GemmPrecision::folded, GemmPrecision::exact}) {
    for (int block = 0; block < 7; ++block) {
      auto p = quantized(Scheme::mxfp8_e4m3, 150, 224, Scheme::mxfp4, 40, {32, 96, 192, 224},
                         DType::bfloat16, precision);
      p.fill(8);
      p.b.scale(0, 4, block) = 0xFF;
      p.a.scale(0, 149, block) = 0xFF;
      for (const bool is_portable : {false, true}) {
        if (is_portable && precision == GemmPrecision::folded) continue;
        OnDevice device(p);
        is_portable ? device.run_as(capabilities_of("sm_80")) : device.run();
        for (int group = 0; group < 4; ++group) {
          const bool has_block = (group == 0   ? block == 0
                                  : group == 1 ? block > 0 && block < 3
                                  : group == 2 ? block > 2 && block < 6
                                               : block == 6);
          for (int row = 0; row < 150; ++row) {
            for (int column = 0; column < 40; ++column) {
              ASSERT_EQ(std::isnan(p.out.value(group, row, column)),
                        has_block && (row == 149 || column == 4))
                  << group << ", " << row << ", " << column << ", block " << block;
            }
          }
        }
      }
    }
  }
}

TEST_F(GroupedColumnsSm90, ShapesThatHaveLittle) {
  const auto expect = [](std::int64_t m, std::int64_t k, std::int64_t n,
                         std::vector<std::int32_t> few) {
    for (const GemmPrecision precision : {GemmPrecision::folded, GemmPrecision::exact}) {
      auto p =
          quantized(Scheme::mxfp8_e4m3, m, k, Scheme::mxfp4, n, few, DType::float32, precision);
      p.add_factors_and_biases(DType::float32, 0);
      p.fill(6);
      const Reference wanted = p.wanted();
      OnDevice device(p);
      device.run();
      EXPECT_TRUE(agrees(p.out, wanted, "little"));
    }
  };
  expect(5, 0, 7, {0, 0});
  expect(5, 64, 7, {});
  expect(0, 64, 7, {0, 0});
  expect(5, 64, 0, {32, 64});
  expect(5, 64, 7, {0, 0});
  expect(1, 1, 1, {1});
  expect(1, 1, 1, {0, 1, 1});
}

TEST_F(GroupedColumnsSm90, ExtremeScales) {
  for (const GemmPrecision precision : {GemmPrecision::folded, GemmPrecision::exact}) {
    auto p = quantized(Scheme::mxfp8_e4m3, 40, 128, Scheme::mxfp4, 40, {64, 128}, DType::float32,
                       precision);
    p.fill(9);
    for (std::int64_t block = 0; block < 4; ++block) {
      for (std::int64_t row = 0; row < 40; ++row) p.a.scale(0, row, block) = 250;
      for (std::int64_t row = 0; row < 40; ++row) p.b.scale(0, row, block) = row < 20 ? 20 : 2;
    }
    const Reference wanted = p.wanted();
    OnDevice device(p);
    device.run();
    EXPECT_TRUE(is_right(p, wanted, "extreme"));
  }
}

// Added to outputs, tiles of a thread block in turns: rows whose scales are extreme are finished
// element by element, after boxes of the output were asked for.
TEST_F(GroupedColumnsSm90, ExtremeTilesBesideOthersThatAreAddedTo) {
  constexpr int rows = 260, first_extreme = 256;
  std::vector<std::int32_t> many;
  for (int i = 0; i < 200; ++i) many.push_back((i == 0 ? 0 : many.back()) + (1 + i % 3) * 32);
  for (const GemmPrecision precision : {GemmPrecision::folded, GemmPrecision::exact}) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      auto p = quantized(Scheme::mxfp8_e4m3, rows, many.back(), Scheme::mxfp4, 72, many, dtype,
                         precision);
      p.fill(10);
      p.add_output(-0.5f);
      for (std::int64_t block = 0; block < many.back() / 32; ++block) {
        for (std::int64_t row = first_extreme; row < rows; ++row) p.a.scale(0, row, block) = 200;
      }
      const Reference wanted = p.wanted();
      OnDevice device(p);
      device.run();
      ASSERT_TRUE(is_right(p, wanted, name_of(dtype)));
    }
  }
}

TEST_F(GroupedColumnsSm90, EndsOfAKernelAhead) {
  for (const GemmPrecision precision : {GemmPrecision::folded, GemmPrecision::exact}) {
    const bool is_folded = precision == GemmPrecision::folded;
    expect_ends_of_a_node_ahead(quantized(Scheme::mxfp8_e4m3, 200, 1024, Scheme::mxfp4, 96,
                                          {32, 64, 928}, DType::bfloat16, precision),
                                is_folded ? PreparedForm::folded : PreparedForm::expanded);
  }
}

}  // namespace
}  // namespace mxkern
