// tests/cpu/quantize/tiles_test.cc: tiles cover a tensor once, and which of them comes next.
#include "cpu/quantize/tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace mxkern::cpu {
namespace {

void expect_tile(const Tile& tile, const Tile& wanted) {
  EXPECT_EQ(tile.batch, wanted.batch);
  EXPECT_EQ(tile.row, wanted.row);
  EXPECT_EQ(tile.column, wanted.column);
  EXPECT_EQ(tile.rows, wanted.rows);
  EXPECT_EQ(tile.columns, wanted.columns);
}

TEST(Tiles, TheNextOneIsToTheRightOrBelow) {
  constexpr Shape shape{3, 300, 1000};
  Tile tile{2, 0, 0, 128, 400};
  tile = next_tile(tile, shape);
  expect_tile(tile, {2, 0, 400, 128, 400});
  expect_tile(next_tile({2, 0, 600, 128, 400}, shape), {2, 128, 0, 128, 400});
  expect_tile(next_tile({2, 128, 600, 128, 400}, shape), {2, 256, 0, 44, 400});
  // The last ones of a line and of a column have what is left.
  tile = next_tile(tile, shape);
  expect_tile(tile, {2, 0, 800, 128, 200});
}

TEST(Tiles, BehindTheLastOneThereAreNoRows) {
  EXPECT_EQ(next_tile({0, 0, 0, 128, 128}, {1, 128, 128}).rows, 0);
  EXPECT_EQ(next_tile({0, 256, 128, 44, 128}, {1, 300, 256}).rows, 0);
  EXPECT_EQ(next_tile({0, 0, 0, 5, 3}, {4, 5, 3}).rows, 0) << "tiles of another matrix";
}

TEST(Tiles, EveryElementIsInOne) {
  for (const Shape& shape : {Shape{1, 1, 1}, {2, 128, 128}, {1, 129, 257}, {3, 300, 1}}) {
    for (const TileShape tile : {TileShape{1, 128}, {128, 128}, {7, 256}}) {
      std::vector<int> seen(static_cast<std::size_t>(shape.size()));
      for_each_tile(shape, tile, [&](const Tile& part) {
        for (std::int64_t row = part.row; row < part.row + part.rows; ++row) {
          for (std::int64_t column = part.column; column < part.column + part.columns; ++column) {
            const std::int64_t at = (part.batch * shape.rows + row) * shape.columns + column;
            ++seen[static_cast<std::size_t>(at)];
          }
        }
      });
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), shape.size())
          << shape.batch << " x " << shape.rows << " x " << shape.columns;
    }
  }
}

}  // namespace
}  // namespace mxkern::cpu
