// tests/cuda/decode/multiply_test.cc: products of few tokens against sums in double precision.
#include "cuda/decode/multiply.h"

#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "mxkern/core/error.h"
#include "mxkern/kernels/decode/shared_memory.h"
#include "tests/support/cuda/decode_product.h"
#include "tests/support/cuda/hopper_test.h"

namespace mxkern {
namespace {

using namespace test;

using CudaDecode = CudaTest;

// 96 tokens have no more columns than the rings hold, for racecheck: see EveryPlan.
TEST_F(CudaDecode, EverySchemeAndShape) {
  const Shape shapes[] = {{1, 1, 128},   {1, 7, 33},   {1, 8, 256},    {1, 9, 1000}, {1, 16, 640},
                          {1, 17, 384},  {1, 33, 130}, {1, 64, 256},   {1, 65, 96},  {1, 130, 64},
                          {1, 24, 4000}, {1, 96, 488}, {1, 100, 1024}, {1, 128, 99}, {1, 200, 264},
                          {1, 256, 384}, {1, 300, 128}};
  const int rows[] = {1, 32, 40, 31, 100, 129, 64, 96, 33, 200, 260, 64, 300, 97, 130, 128, 65};
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : {DType::bfloat16, DType::float16}) {
      for (std::size_t i = 0; i < std::size(shapes); ++i) {
        Product p(dtype, scheme, shapes[i], rows[i], 1, all_dtypes[turn % 3]);
        p.fill(static_cast<std::uint64_t>(++turn));
        expect_agrees(p);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Hopper's tensor cores take fewer tokens too where weights are large: rows that the copy engine
// reads in boxes, ragged ones too, a gap between rows, and thread blocks that divide K.
TEST_F(CudaDecode, LargeWeights) {
  struct Case {
    Scheme scheme;
    Shape x;
    int rows, gap;
  };
  const Case cases[] = {{Scheme::mxfp8_e4m3, {1, 17, 640}, 52429, 0},
                        {Scheme::mxfp4, {2, 20, 1000}, 33600, 8},
                        {Scheme::nvfp4, {1, 36, 4104}, 8192, 0}};
  for (const Case& c : cases) {
    Product p(DType::bfloat16, c.scheme, c.x, c.rows, 1, DType::bfloat16, c.gap);
    p.fill(19);
    expect_agrees(p);
    if (HasFatalFailure()) return;
  }
}

// Warps that share their tokens and warps that each have their own, with a tile of rows or two, all
// ways to divide rows and K, rings that turn and rings that do not: rows that end within a thread
// block, and parts of K that are empty.
void expect_every_plan(const int (&columns)[4], std::initializer_list<int> groups_of_rows) {
  int turn = 0, computed = 0;
  const auto expect = [&](DecodePlan plan, int groups, bool shares) {
    const Scheme scheme = all_schemes[++turn % std::size(all_schemes)];
    const SchemeFacts facts = facts_of(scheme);
    const kernels::DecodeShape shape{facts.bits, facts.block, plan.tokens};
    if (plan.warp_tiles > shape.most_warp_tiles()) return;
    if (!shares && !shape.may_keep(plan.warp_tiles)) return;
    if (groups << plan.log2_parts > shape.warps()) return;
    plan.row_tiles = groups * plan.warp_tiles;
    if (shape.stages() > 0 && plan.stages != shape.stages()) return;
    plan.x_stages = shares ? plan.stages << plan.log2_parts : 0;
    plan.shared_bytes = shape.bytes(plan.row_tiles, plan.warp_tiles, plan.log2_parts,
                                    plan.log2_ranks, plan.stages, plan.x_stages);
    if (plan.shared_bytes > shape.room()) return;
    ++computed;
    SCOPED_TRACE(::testing::Message()
                 << "groups of " << plan.tokens << ", " << plan.row_tiles << " tiles of rows, "
                 << plan.warp_tiles << " a warp, " << (1 << plan.log2_parts) << " parts, "
                 << (1 << plan.log2_ranks) << " ranks, stages of tokens " << plan.x_stages);
    constexpr int rows[] = {300, 257, 64, 31, 100};
    const DType dtype = turn % 3 == 0 ? DType::float16 : DType::bfloat16;
    Product p(dtype, scheme, {1, plan.tokens + turn % 5 - 2, columns[turn % 4]}, rows[turn % 5], 1,
              all_dtypes[turn % 2], turn % 3 == 1 ? 8 : 0);
    p.fill(static_cast<std::uint64_t>(turn));
    p.plan = &plan;
    if (turn % 4 == 0) p.weights.scale(0, rows[turn % 5] / 2, 0) = facts.nan_scale;
    expect_agrees(p);
  };
  for (const int tokens : {8, 16, 32, 64}) {
    for (int warp_tiles = 1; warp_tiles <= 2; ++warp_tiles) {
      for (int log2_parts = 0; log2_parts <= 4; ++log2_parts) {
        for (const int log2_ranks : {0, 1, 2}) {
          for (const int groups : groups_of_rows) {
            for (const int way : {0, 1, 2, 3}) {
              DecodePlan plan{};
              plan.tokens = tokens;
              plan.warp_tiles = warp_tiles;
              plan.log2_parts = log2_parts;
              plan.log2_ranks = log2_ranks;
              plan.stages = 2 + way / 2;
              expect(plan, groups, way % 2 != 0);
              if (::testing::Test::HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(computed, 150);
}

using CudaDecodeByPlans = HopperTest;

// No more columns than the rings hold: racecheck does not see that one lane arrives for its warp,
// once all lanes have read a stage.
TEST_F(CudaDecodeByPlans, EveryPlan) { expect_every_plan({256, 136, 200, 33}, {1, 2, 3, 7}); }

TEST_F(CudaDecodeByPlans, EveryPlanOfLongRows) {
  expect_every_plan({1160, 1416, 640, 776}, {1, 3});
}

TEST_F(CudaDecode, LongSums) {
  for (const Scheme scheme : all_schemes) {
    for (const int tokens : {3, 16, 24, 50, 128}) {
      Product p(DType::bfloat16, scheme, {1, tokens, 8192}, 96, 1, DType::float32);
      p.fill(17);
      expect_agrees(p);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaDecode, BatchesStridesAndWhatIsAdded) {
  PlainTensor bias(DType::float16, {1, 1, 72});
  bias.fill(normal_values(3));
  for (const int tokens : {5, 30}) {
    for (const std::int64_t batch : {1, 3}) {
      for (const int gap : {0, 8, 3}) {
        for (const int shift : {0, 1}) {
          Product p(DType::bfloat16, Scheme::mxfp4, {3, tokens, 320}, 72, batch, DType::bfloat16,
                    gap, ScaleLayout::swizzled);
          p.fill(static_cast<std::uint64_t>(batch + gap));
          p.out.fill(normal_values(5));
          p.alpha = -1.5f;
          p.beta = 0.5f;
          p.bias = &bias;
          p.shift = shift;
          const PlainTensor before = p.out;
          expect_agrees(p);
          if (HasFatalFailure()) return;
          p.out = before;
          p.prepared = false;
          expect_agrees(p);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Codes and scales that no quantizer makes: NaN and infinite codes, NaN scales, the smallest and
// the largest scales.
TEST_F(CudaDecode, EveryCodeAndScale) {
  RandomBits random(23);
  for (const Scheme scheme : all_schemes) {
    for (const int tokens : {2, 16, 40, 130, -2, -16}) {
      // In float16 scales of E8M0 overflow; those of NVFP4 do not.
      if (tokens < 0 && facts_of(scheme).block == 32) continue;
      Product p(tokens < 0 ? DType::float16 : DType::bfloat16, scheme, {1, std::abs(tokens), 96},
                64, 1, DType::float32);
      p.fill(29);
      p.weights.fill_with_random_bytes(random);
      if (facts_of(scheme).block == 32) {
        // Products stay inside float32.
        for (auto& scale : p.weights.scales) {
          if (scale != 255) scale = static_cast<std::uint8_t>(64 + scale / 2);
        }
        for (int row = 0; row < 8; ++row) p.weights.scale(0, row, 0) = row % 2 == 0 ? 0 : 200;
      }
      expect_agrees(p);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaDecode, PoisonReachesItsRowAndItsToken) {
  for (const Scheme scheme : all_schemes) {
    for (const int tokens : {4, 32, 70}) {
      Product p(DType::bfloat16, scheme, {1, tokens, 256}, 70, 1, DType::float32);
      p.fill(31);
      p.weights.scale(0, 33, 1) = facts_of(scheme).nan_scale;
      p.x.set(0, 2, 100, std::numeric_limits<float>::quiet_NaN());
      p.x.set(0, 3, 7, std::numeric_limits<float>::infinity());
      expect_agrees(p);
      if (HasFatalFailure()) return;
      for (int token = 0; token < tokens; ++token) {
        for (int row = 0; row < 70; ++row) {
          if (token == 3) continue;
          ASSERT_EQ(std::isnan(p.out.value(0, token, row)), row == 33 || token == 2)
              << token << ", " << row;
        }
      }
    }
  }
}

TEST_F(CudaDecode, HugeAndSmallTokens) {
  for (const Scheme scheme : {Scheme::mxfp4, Scheme::mxfp8_e4m3, Scheme::nvfp4}) {
    for (const int exponent : {-80, -40, 20, 60, 100}) {
      Product p(DType::bfloat16, scheme, {1, 3, 192}, 40, 1, DType::float32);
      p.fill(37);
      const Values normal = normal_values(38);
      p.x.fill([&](std::int64_t batch, std::int64_t row, std::int64_t k) {
        return std::ldexp(normal(batch, row, k), exponent);
      });
      expect_agrees(p);
      if (HasFatalFailure()) return;
    }
  }
}

// Anti-correlated scales of tokens and weights: products of one size from factors of many.
TEST_F(CudaDecode, WideSpreads) {
  for (const Scheme scheme : all_schemes) {
    if (facts_of(scheme).block == 16) continue;
    for (const int tokens : {8, 20, 70}) {
      Product p(DType::bfloat16, scheme, {1, tokens, 1024}, 64, 1, DType::float32);
      const Values left = normal_values(41), right = normal_values(42);
      const auto exponent = [](std::int64_t k) { return static_cast<int>(k / 32 * 7 % 41) - 20; };
      p.x.fill([&](std::int64_t batch, std::int64_t row, std::int64_t k) {
        return std::ldexp(left(batch, row, k), exponent(k));
      });
      p.weights.quantize([&](std::int64_t batch, std::int64_t row, std::int64_t k) {
        return std::ldexp(right(batch, row, k), -exponent(k));
      });
      expect_agrees(p);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaDecode, SameBytesEveryTimeAndInGraphs) {
  for (const int tokens : {5, 16, 48, 200}) {
    for (const bool prepared : {true, false}) {
      Product p(DType::bfloat16, Scheme::mxfp8_e4m3, {1, tokens, 4096}, 512, 1, DType::float32);
      p.fill(43);
      p.run();
      const std::vector<std::uint8_t> first = p.out.bytes;
      p.runs = 5;
      p.prepared = prepared;
      p.run();
      ASSERT_EQ(p.out.bytes, first);
    }
  }
}

TEST_F(CudaDecode, NothingToDo) {
  for (const Shape& shape : {Shape{1, 0, 64}, Shape{1, 4, 0}}) {
    Product p(DType::bfloat16, Scheme::mxfp4, shape, 8, 1, DType::float32);
    p.out.fill(normal_values(1));
    p.beta = 2.0f;
    const Reference wanted = p.wanted();
    p.run();
    ASSERT_TRUE(agrees(p.out, wanted, "nothing"));
  }
  Product p(DType::bfloat16, Scheme::mxfp4, {1, 4, 64}, 0, 1, DType::float32);
  p.run();
}

TEST_F(CudaDecode, BadArguments) {
  Product p(DType::bfloat16, Scheme::mxfp4, {1, 4, 64}, 8, 1, DType::float32);
  DeviceBytes memory(1 << 16);
  cuda::ReorderedWeights weights{Scheme::mxfp4, {1, 8, 64}, memory.data(), first_cuda_device};
  Buffer x = Buffer::dense(memory.data(), DType::bfloat16, {1, 4, 64}, first_cuda_device);
  cuda::CoreFinish finish;
  finish.out = Buffer::dense(memory.data(), DType::float32, {1, 4, 8}, first_cuda_device);
  Buffer wrong = x;
  wrong.dtype = DType::float32;
  EXPECT_THROW(cuda::multiply_decode("test", wrong, weights, finish, {}, {}), InvalidType);
  wrong = x;
  wrong.shape.columns = 32;
  EXPECT_THROW(cuda::multiply_decode("test", wrong, weights, finish, {}, {}), InvalidArgument);
  wrong = x;
  wrong.data = memory.data() + 2;
  EXPECT_THROW(cuda::multiply_decode("test", wrong, weights, finish, {}, {}), InvalidArgument);
  // Rings that the kernels have no code for.
  DecodePlan plan = plan_decode(Scheme::mxfp4, 1, 4, 8, 64, 132);
  plan.stages = 3;
  EXPECT_THROW(cuda::multiply_decode_by(plan, "test", x, weights, finish, {}, {}), InvalidArgument);
  plan.stages = 2;
  plan.x_stages = 1;
  EXPECT_THROW(cuda::multiply_decode_by(plan, "test", x, weights, finish, {}, {}), InvalidArgument);
  finish.out.shape.columns = 9;
  EXPECT_THROW(cuda::multiply_decode("test", x, weights, finish, {}, {}), InvalidArgument);
}

}  // namespace
}  // namespace mxkern
