// tests/structure/cutlass_scale_layout_test.cc: swizzled scales lie where CUTLASS expects them.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "cute/tensor.hpp"
#include "cutlass/detail/sm100_blockscaled_layout.hpp"
#include "mxkern/tensor/scale_layout.h"

namespace mxkern {
namespace {

struct Extents {
  int rows;     // of the operand: M of the left one, N of the right one
  int columns;  // K
};

// Every coordinate of every matrix of the batch, padding included where CUTLASS has an index for
// it.
template <class Layout>
void expect_same(const Layout& layout, Extents extents, int block, int batch) {
  const std::int64_t blocks = ceil_div(extents.columns, block);
  const ScaleIndex index{extents.rows, blocks, ScaleLayout::swizzled};
  ASSERT_EQ(static_cast<std::int64_t>(cute::cosize(layout)), batch * index.size())
      << "rows " << extents.rows << " columns " << extents.columns << " block " << block;
  for (int matrix = 0; matrix < batch; ++matrix) {
    for (int row = 0; row < extents.rows; ++row) {
      for (int column = 0; column < extents.columns; ++column) {
        const std::int64_t ours = matrix * index.size() + index.offset(row, column / block);
        const std::int64_t theirs = layout(row, column, matrix);
        ASSERT_EQ(ours, theirs) << "matrix " << matrix << " row " << row << " column " << column
                                << " of rows " << extents.rows << " columns " << extents.columns
                                << " block " << block;
      }
    }
  }
}

template <int Block>
void expect_same_for_all_extents() {
  using Config = cutlass::detail::Sm1xxBlockScaledConfig<Block>;
  const std::vector<int> rows = {1, 31, 32, 33, 96, 127, 128, 129, 200, 256, 300, 513};
  const std::vector<int> columns = {1,         Block - 1,     Block,         Block + 1,
                                    3 * Block, 4 * Block - 1, 4 * Block,     4 * Block + 1,
                                    5 * Block, 8 * Block,     9 * Block + 7, 17 * Block};
  for (const int row_count : rows) {
    for (const int column_count : columns) {
      // The other operand's extent must not matter; 77 is neither of these.
      const auto left = cute::make_shape(row_count, 77, column_count, 2);
      const auto right = cute::make_shape(77, row_count, column_count, 2);
      expect_same(Config::tile_atom_to_shape_SFA(left), {row_count, column_count}, Block, 2);
      expect_same(Config::tile_atom_to_shape_SFB(right), {row_count, column_count}, Block, 2);
    }
  }
}

TEST(CutlassScaleLayout, BlocksOf16) { expect_same_for_all_extents<16>(); }
TEST(CutlassScaleLayout, BlocksOf32) { expect_same_for_all_extents<32>(); }

}  // namespace
}  // namespace mxkern
