// tests/cuda/gemm/hopper/overlap_pieces_test.cu: late rows come in pieces, each of which is made
// once and counted for the tile that waits for it. On the host: it needs no device.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "cuda/gemm/hopper/instances.cuh"

namespace mxkern {
namespace {

using kernels::LateRows;

struct Case {
  int first, rows, columns, ahead;  // columns ahead: all where no column is late
};

const Case cases[] = {
    {1024, 2048, 14336, 4096}, {1024, 2040, 10368, 2048}, {1536, 4000, 4096, 2048},
    {256, 256, 2176, 2048},    {256, 390, 4736, 2048},    {4352, 5000, 6272, 2048},
    {1024, 4096, 4096, 4096},  {256, 300, 128, 128},      {768, 1000, 28672, 8192}};

constexpr int least_group = 128;  // rows of a tile

// Of an operand whose addresses nobody reads.
LateRows late_rows_of(const Case& c) {
  static std::uint32_t somewhere;
  cuda::RowScaled x = {};
  x.data = &somewhere;
  x.batch = 1;
  x.rows = c.rows;
  x.columns = c.columns;
  x.late.codes = x.late.scales = reinterpret_cast<const std::uint8_t*>(&somewhere);
  x.late.first = {c.first, &somewhere, false, c.ahead == c.columns ? 0 : c.ahead};
  return cuda::late_rows("test", x, least_group);
}

// Every code that is not there when the product starts, and no other one.
TEST(LatePiecesTest, EachCodeIsMadeOnce) {
  for (const Case& c : cases) {
    const auto& [first, rows, columns, ahead] = c;
    const LateRows pieces = late_rows_of(c);
    constexpr int unit = 128;  // of columns
    const int units = columns / unit;
    std::vector<int> times(static_cast<std::size_t>(rows * units));
    std::uint32_t next = 0;
    for (std::uint32_t ticket = 0; pieces.first_piece(ticket) < pieces.pieces(); ++ticket) {
      const std::uint32_t begin = pieces.first_piece(ticket), end = pieces.end_of_pieces(begin);
      ASSERT_EQ(begin, next) << "ticket " << ticket;
      ASSERT_LE(end, pieces.pieces());
      next = end;
      for (std::uint32_t i = begin; i < end; ++i) {
        const LateRows::Piece at = pieces.piece(i);
        ASSERT_LT(at.row, rows);
        for (int k = at.column / unit; k < pieces.end_of(at) / unit; ++k) {
          ++times[static_cast<std::size_t>(at.row * units + k)];
        }
      }
    }
    EXPECT_EQ(next, pieces.pieces());
    for (int row = 0; row < rows; ++row) {
      for (int k = 0; k < units; ++k) {
        const int wanted = row >= first || k * unit >= ahead ? 1 : 0;
        ASSERT_EQ(times[static_cast<std::size_t>(row * units + k)], wanted)
            << "row " << row << " of " << rows << ", column " << k * unit << " of " << columns;
      }
    }
  }
}

// The first turn of tiles needs its rows step by step, and the other rows after that.
TEST(LatePiecesTest, ColumnsComeInOrderAndAheadOfRows) {
  for (const Case& c : cases) {
    const auto& [first, rows, columns, ahead] = c;
    const LateRows pieces = late_rows_of(c);
    int column = ahead, row = first - 1;
    for (std::uint32_t i = 0; i < pieces.pieces(); ++i) {
      const LateRows::Piece at = pieces.piece(i);
      ASSERT_EQ(at.is_stretch(), i < pieces.stretches);
      if (at.is_stretch()) {
        ASSERT_GE(at.column, column);
        ASSERT_EQ((at.column - ahead) % LateRows::stretch, 0);
        ASSERT_LT(at.row, first);
        column = at.column;
      } else {
        ASSERT_EQ(at.row, row + 1);
        row = at.row;
      }
    }
  }
}

// A counter tells of one tile's rows, or of one stretch of its columns, and a warp tells once of
// what it took. There is memory for all counters.
TEST(LatePiecesTest, CountersAreForTiles) {
  for (const Case& c : cases) {
    const auto& [first, rows, columns, ahead] = c;
    const LateRows pieces = late_rows_of(c);
    const std::int64_t counters =
        cuda::FirstRows::counters(first, ahead == columns ? 0 : ahead, {1, rows, columns});
    for (const int log2_group : {7, 8}) {
      const int group = 1 << log2_group;
      std::map<int, int> count;
      std::map<int, std::pair<int, int>> tile_of;  // and stretch
      for (std::uint32_t ticket = 0; pieces.first_piece(ticket) < pieces.pieces(); ++ticket) {
        const std::uint32_t begin = pieces.first_piece(ticket), end = pieces.end_of_pieces(begin);
        const auto counter_of = [&](std::uint32_t piece) {
          return static_cast<int>(pieces.counter(pieces.piece(piece), log2_group) -
                                  pieces.progress);
        };
        const int counter = counter_of(begin);
        ASSERT_GT(counter, 0) << "the first one is for tickets";
        ASSERT_LT(counter, counters);
        for (std::uint32_t i = begin; i < end; ++i) {
          const LateRows::Piece at = pieces.piece(i);
          ASSERT_EQ(counter_of(i), counter) << "ticket " << ticket;
          const std::pair tile{at.row >> log2_group, at.column};
          ASSERT_EQ(tile_of.emplace(counter, tile).first->second, tile);
          ++count[counter];
        }
      }
      for (const auto& [counter, number] : count) {
        const auto [tile, column] = tile_of[counter];
        const int in_tile = column > 0 ? group : lower_of(group, rows - tile * group);
        EXPECT_EQ(number, in_tile) << "tile " << tile << ", column " << column;
      }
    }
  }
}

TEST(LatePiecesTest, ColumnsThatAreAheadAreWholeStretches) {
  EXPECT_THROW(late_rows_of({256, 512, 8192, 1024}), InvalidArgument);
  EXPECT_THROW(late_rows_of({256, 512, 4096, 6144}), InvalidArgument);
  EXPECT_THROW(late_rows_of({192, 512, 4096, 2048}), InvalidArgument) << "half a tile";
}

}  // namespace
}  // namespace mxkern
