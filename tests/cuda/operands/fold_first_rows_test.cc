// tests/cuda/operands/fold_first_rows_test.cc: rows, and columns of rows, that are folded ahead of
// the others.
#include <vector>

#include "cuda/operands/fold.h"
#include "mxkern/mxkern.h"
#include "tests/support/cuda/memory.h"
#include "tests/support/cuda/folded_rows.h"

namespace mxkern {
namespace {

using namespace test;

using CudaFoldFirstRows = CudaTest;

// The first rows are folded; of the others the gate's question is answered: is any block that is
// not all zeros beyond the limit?
TEST_F(CudaFoldFirstRows, SpreadsOfRowsThatAreFoldedLater) {
  constexpr int limit = Fold<E4M3>::spread_limit;
  RandomBits random(3);
  struct Case {
    Shape shape;
    std::int64_t first;
  };
  for (const auto& [shape, first] : {Case{{1, 2300, 4096}, 1024},
                                     {{1, 500, 4224}, 128},
                                     {{1, 300, 12416}, 64},
                                     {{1, 5000, 256}, 4352},
                                     {{1, 1500, 128}, 64}}) {
    for (const ScaleLayout layout : all_scale_layouts) {
      for (const int spread : {limit, limit + 1, 100}) {
        Quantized q(Scheme::mxfp8_e4m3, shape, layout);
        fill(q, spread, random);
        q.out();
        Folded all(shape), some(shape);
        DeviceQuantized device_q(q);
        all.fill_on_device(
            [&](std::uint8_t* memory) { cuda::fold("fold", device_q.view(), memory, {}); });
        DeviceBytes progress(
            static_cast<std::size_t>(cuda::FirstRows::counters(first, 0, shape) * 4));
        const cuda::FirstRows first_rows{first, reinterpret_cast<std::uint32_t*>(progress.data()),
                                         true};
        some.fill_on_device([&](std::uint8_t* memory) {
          cuda::fold("fold", device_q.view(), memory, {}, kernels::Follows::behind, {}, first_rows);
        });
        int beyond = 0;
        for (std::int64_t row = 0; row < shape.rows; ++row) {
          const int wanted = all.spread(row), got = some.spread(row);
          if (wanted > limit) ++beyond;
          const bool is_right = row < first || wanted > limit ? got == wanted : got <= limit;
          ASSERT_TRUE(is_right) << "row " << row << " of " << shape.rows << ": " << got << ", want "
                                << wanted;
          const std::uint8_t code = some.code(0, row, 0);
          ASSERT_EQ(code, row < first ? all.code(0, row, 0) : 0xCD) << "row " << row;
        }
        EXPECT_EQ(beyond > 0, spread > limit);
      }
    }
  }
}

// Who asks for no spreads gets the same rows; and of first rows it may be the first columns.
TEST_F(CudaFoldFirstRows, WithoutSpreadsAndFirstColumns) {
  RandomBits random(4);
  struct Case {
    Shape shape;
    std::int64_t rows, columns;  // 0: all
  };
  for (const auto& [shape, rows, columns] : {Case{{1, 300, 4096}, 0, 0},
                                             {{1, 5000, 384}, 0, 0},
                                             {{1, 300, 12416}, 0, 0},
                                             {{1, 1500, 8320}, 0, 0},
                                             {{1, 300, 4096}, 128, 2048},
                                             {{1, 2300, 6272}, 1024, 4096},
                                             {{1, 5000, 4224}, 4352, 2048},
                                             {{1, 300, 12416}, 64, 6144}}) {
    for (const Scheme scheme : {Scheme::mxfp8_e4m3, Scheme::mxfp8_e5m2}) {
      for (const ScaleLayout layout : all_scale_layouts) {
        Quantized q(scheme, shape, layout);
        fill(q, 12, random);
        q.out();
        Folded all(shape), some(shape);
        DeviceQuantized device_q(q);
        all.fill_on_device(
            [&](std::uint8_t* memory) { cuda::fold("fold", device_q.view(), memory, {}); });
        cuda::FirstRows first;
        first.rows = rows;
        first.columns = columns;
        DeviceBytes progress(static_cast<std::size_t>(first.counters(shape) * 4));
        first.progress = reinterpret_cast<std::uint32_t*>(progress.data());
        some.fill_on_device([&](std::uint8_t* memory) {
          cuda::fold("fold", device_q.view(), memory, {}, kernels::Follows::behind, {}, first,
                     false);
        });
        const std::int64_t folded_rows = rows > 0 ? rows : shape.rows;
        const std::int64_t folded_columns = columns > 0 ? columns : shape.columns;
        for (std::int64_t row = 0; row < folded_rows; ++row) {
          ASSERT_EQ(some.exponent(row), all.exponent(row)) << "row " << row;
          for (std::int64_t column = 0; column < shape.columns; ++column) {
            const std::uint8_t wanted = column < folded_columns ? all.code(0, row, column) : 0xCD;
            ASSERT_EQ(some.code(0, row, column), wanted)
                << name_of(scheme) << " [" << shape.rows << ", " << shape.columns << "], row "
                << row << ", column " << column;
          }
        }
      }
    }
  }
}

TEST_F(CudaFoldFirstRows, FirstColumnsAreChecked) {
  Quantized q(Scheme::mxfp8_e4m3, {1, 300, 4096}, ScaleLayout::row_major);
  q.out();
  DeviceQuantized device_q(q);
  DeviceBytes memory(static_cast<std::size_t>(cuda::folded_layout(q.view.shape).bytes));
  DeviceBytes progress(1 << 16);
  auto* counters = reinterpret_cast<std::uint32_t*>(progress.data());
  const auto fold_first = [&](const cuda::FirstRows& first) {
    cuda::fold("fold", device_q.view(), memory.data(), {}, kernels::Follows::behind, {}, first);
  };
  EXPECT_THROW(fold_first({128, counters, true, 2048}), InvalidArgument) << "spreads of a part";
  EXPECT_THROW(fold_first({128, counters, false, 6144}), InvalidArgument) << "more than there are";
}

}  // namespace
}  // namespace mxkern
