// tests/cuda/multiply_staged_test.cc: products whose weights are decoded into shared memory.
#include <cstdint>
#include <vector>

#include "tests/support/few_product.h"
#include "tests/support/hopper_test.h"

namespace mxkern {
namespace {

using namespace test;

using CudaMultiplyStaged = HopperTest;

// Every way in which weights are decoded into shared memory: rows and columns that fill no tile,
// parts of K that are empty, tokens that are copied first, batches, and all that belongs to rows.
TEST_F(CudaMultiplyStaged, EveryPlan) {
  struct Case {
    Shape x;
    int rows, batch, gap, shift;
  };
  const Case cases[] = {{{1, 128, 640}, 300, 1, 0, 0}, {{1, 65, 130}, 225, 1, 8, 0},
                        {{1, 1, 96}, 1, 1, 0, 0},      {{1, 100, 520}, 256, 1, 3, 1},
                        {{3, 17, 264}, 257, 3, 0, 0},  {{1, 129, 1024}, 224, 1, 0, 0},
                        {{2, 77, 384}, 31, 1, 8, 0},   {{1, 300, 384}, 260, 1, 0, 0}};
  int turn = 0;
  for (const Scheme scheme : {Scheme::mxfp4, Scheme::nvfp4}) {
    for (const int row_tiles : {7, 8}) {
      for (const int log2_ranks : {0, 1, 2, 3}) {
        const FewPlan plan = staged_plan(scheme, row_tiles, log2_ranks);
        for (const Case& c : cases) {
          SCOPED_TRACE(::testing::Message() << row_tiles << " tiles, ranks " << (1 << log2_ranks));
          ++turn;
          Product p(DType::bfloat16, scheme, c.x, c.rows, c.batch, all_dtypes[turn % 3], c.gap);
          p.fill(static_cast<std::uint64_t>(turn));
          p.plan = &plan;
          p.shift = c.shift;
          PlainTensor bias(DType::float16, {1, 1, c.rows});
          bias.fill(normal_values(3));
          if (turn % 2 != 0) p.bias = &bias;
          if (turn % 4 == 0) {
            p.out.fill(normal_values(5));
            p.alpha = -1.5f;
            p.beta = 0.5f;
          }
          // A row that is not ordinary, of infinite tokens' product and of a NaN scale.
          if (turn % 5 == 0) p.weights.scale(0, c.rows / 2, 0) = facts_of(scheme).nan_scale;
          if (turn % 3 == 0 && facts_of(scheme).block == 32) p.weights.scale(0, 0, 0) = 200;
          expect_agrees(p);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(CudaMultiplyStaged, SameBytesEveryTimeAndInGraphs) {
  for (const int log2_ranks : {0, 2}) {
    const FewPlan plan = staged_plan(Scheme::nvfp4, 7, log2_ranks);
    Product p(DType::bfloat16, Scheme::nvfp4, {1, 120, 4096}, 512, 1, DType::float32);
    p.fill(43);
    p.plan = &plan;
    p.run();
    const std::vector<std::uint8_t> first = p.out.bytes;
    p.runs = 5;
    p.run();
    ASSERT_EQ(p.out.bytes, first);
  }
}

}  // namespace
}  // namespace mxkern
