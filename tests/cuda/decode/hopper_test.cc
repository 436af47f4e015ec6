// tests/cuda/decode/hopper_test.cc: products of tens of tokens on Hopper, by every plan.
#include <cstdint>
#include <vector>

#include "mxkern/kernels/decode/hopper/shared_memory.h"
#include "tests/support/cuda/decode_product.h"
#include "tests/support/cuda/hopper_test.h"

namespace mxkern {
namespace {

using namespace test;
using Shape90 = kernels::DecodeSm90Shape;

using CudaDecodeSm90 = HopperTest;

// expect(size, warpgroups, log2_parts, log2_ranks) of all that there are, until one ends a test.
template <class Expect>
void for_every_plan(const Expect& expect) {
  for (const int size : Shape90::token_sizes) {
    for (int warpgroups = Shape90::fewest_warpgroups; warpgroups <= Shape90::most_warpgroups(size);
         warpgroups += 2) {
      for (int log2_parts = 0; 1 << log2_parts <= warpgroups; ++log2_parts) {
        for (const int log2_ranks : {0, 1, 2}) {
          expect(size, warpgroups, log2_parts, log2_ranks);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// All sizes of groups, parts of K and clusters: groups that are not full, two of them, rows and
// columns that fill no tile, parts of K that are empty, rows of tokens with gaps, groups of rows
// that do not exist, and all that belongs to rows.
void expect_every_plan(const int (&columns)[5]) {
  int turn = 0, computed = 0;
  const auto expect = [&](int size, int warpgroups, int log2_parts, int log2_ranks) {
    const Scheme scheme = all_schemes[turn % std::size(all_schemes)];
    DecodePlan plan = decode_sm90_plan(scheme, size, warpgroups, log2_parts, log2_ranks);
    SCOPED_TRACE(::testing::Message() << name_of(scheme) << ", groups of " << size << ", "
                                      << warpgroups << " warpgroups, " << (1 << log2_parts)
                                      << " parts, " << (1 << log2_ranks) << " ranks");
    ++turn;
    if (plan.stages < 2) return;  // no room
    if (Shape90::has_pairs(size, plan.row_tiles, log2_parts)) plan.idle_groups = turn % 3;
    ++computed;
    constexpr int rows[] = {300, 257, 64, 31};
    const int tokens = turn % 2 == 0 ? 2 * size - 3 : size - 3;
    Product p(DType::bfloat16, scheme, {1, tokens, columns[turn % 5]}, rows[turn % 4], 1,
              all_dtypes[turn % 3], turn % 3 == 0 ? 8 : 0);
    p.fill(static_cast<std::uint64_t>(turn));
    p.plan = &plan;
    PlainTensor bias(DType::float16, {1, 1, rows[turn % 4]});
    bias.fill(normal_values(3));
    if (turn % 2 != 0) p.bias = &bias;
    if (turn % 4 == 0) {
      p.out.fill(normal_values(5));
      p.alpha = -1.5f;
      p.beta = 0.5f;
    }
    if (turn % 5 == 0) p.weights.scale(0, rows[turn % 4] / 2, 0) = facts_of(scheme).nan_scale;
    expect_agrees(p);
  };
  for_every_plan(expect);
  EXPECT_GT(computed, 40);
}

// Ordinary outputs come from registers, others through shared memory, as those to which something
// is added: nothing, here. They are the same bytes.
TEST_F(CudaDecodeSm90, OrdinaryOutputsAreAsOthers) {
  int turn = -1, computed = 0;
  for_every_plan([&](int size, int warpgroups, int log2_parts, int log2_ranks) {
    const Scheme scheme = all_schemes[++turn % std::size(all_schemes)];
    const DecodePlan plan = decode_sm90_plan(scheme, size, warpgroups, log2_parts, log2_ranks);
    if (plan.stages < 2) return;  // no room
    ++computed;
    SCOPED_TRACE(::testing::Message() << name_of(scheme) << ", groups of " << size << ", "
                                      << warpgroups << " warpgroups, " << (1 << log2_parts)
                                      << " parts, " << (1 << log2_ranks) << " ranks");
    const std::int64_t rows = 2 * plan.row_tiles * DecodeLayout::tile_rows;
    const DType dtype = turn % 2 == 0 ? DType::bfloat16 : DType::float16;
    Product p(dtype, scheme, {2, size - turn % 7, 640}, rows, 2, all_dtypes[turn % 3]);
    p.fill(static_cast<std::uint64_t>(turn));
    p.plan = &plan;
    p.alpha = 0.7f;
    PlainTensor bias(DType::bfloat16, {1, 1, rows});
    bias.fill(normal_values(3));
    if (turn % 4 < 2) p.bias = &bias;
    expect_agrees(p);
    const std::vector<std::uint8_t> ordinary = p.out.bytes;
    p.out.fill([](auto, auto, auto) { return 0.0; });
    p.beta = 1.0f;
    p.run();
    ASSERT_EQ(p.out.bytes, ordinary);
  });
  EXPECT_GT(computed, 40);
}

// No more columns than the rings hold: racecheck does not see that lane 0 arrives for its warp,
// once all lanes have read a stage.
TEST_F(CudaDecodeSm90, EveryPlan) { expect_every_plan({256, 136, 200, 96, 33}); }

TEST_F(CudaDecodeSm90, EveryPlanOfLongRows) { expect_every_plan({640, 136, 1032, 384, 2056}); }

// Every scale of NVFP4 that is a number, subnormal ones and zero among them, and codes that are not
// zeros everywhere.
TEST_F(CudaDecodeSm90, EveryScaleOfNvfp4) {
  constexpr int rows = 127, columns = 160;
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    for (const int tokens : {8, 40, 100}) {
      Product p(dtype, Scheme::nvfp4, {1, tokens, columns}, rows, 1, DType::float32);
      p.fill(7);
      for (int row = 0; row < rows; ++row) {
        for (int k = 0; k < columns; ++k) {
          p.weights.set_code(0, row, k, static_cast<std::uint32_t>(1 + (row + k) % 7));
        }
        for (int block = 0; block < columns / 16; ++block) {
          p.weights.scale(0, row, block) = static_cast<std::uint8_t>((row + 13 * block) % 127);
        }
      }
      for (int block = 0; block < columns / 16; ++block) {
        p.weights.scale(0, 0, block) = 0;
        p.weights.scale(0, 1, block) = static_cast<std::uint8_t>(1 + block % 7);
      }
      expect_agrees(p);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaDecodeSm90, SameBytesEveryTimeAndInGraphs) {
  for (const int size : {32, 96, 192}) {
    const DecodePlan plan = decode_sm90_plan(Scheme::mxfp4, size, size == 32 ? 4 : 2, 1, 1);
    Product p(DType::bfloat16, Scheme::mxfp4, {1, 200, 4096}, 256, 1, DType::float32);
    p.fill(43);
    p.plan = &plan;
    p.run();
    const std::vector<std::uint8_t> first = p.out.bytes;
    p.runs = 5;
    p.run();
    ASSERT_EQ(p.out.bytes, first) << size;
  }
}

}  // namespace
}  // namespace mxkern
