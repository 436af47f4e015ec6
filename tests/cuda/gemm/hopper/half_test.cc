// tests/cuda/gemm/hopper/half_test.cc: float16 tokens on Hopper's tensor cores, whose weights are
// decoded relative to their row's largest scale.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "mxkern/kernels/decode/hopper/shared_memory.h"
#include "tests/support/cuda/decode_product.h"
#include "tests/support/cuda/hopper_test.h"

namespace mxkern {
namespace {

using namespace test;

using CudaMultiplyHalf = HopperTest;

// A plan for Hopper's tensor cores, for a single token too.
DecodePlan plan_of(const Product& p) {
  const Shape &x = p.x.view.shape, &w = p.weights.view.shape;
  const bool shares = w.batch == 1;
  return plan_decode_sm90(p.weights.view.scheme, shares ? 1 : x.batch,
                          shares ? x.batch * x.rows : x.rows, w.rows, w.columns, 132,
                          DType::float16);
}

void expect_plan_agrees(Product& p) {
  const DecodePlan plan = plan_of(p);
  p.plan = &plan;
  expect_agrees(p);
  p.plan = nullptr;
}

TEST_F(CudaMultiplyHalf, EverySchemeAndShape) {
  const Shape shapes[] = {{1, 17, 384},   {1, 33, 130},  {1, 64, 256},  {1, 65, 96},
                          {1, 96, 520},   {1, 128, 99},  {1, 200, 264}, {1, 256, 384},
                          {1, 300, 1000}, {1, 24, 4000}, {1, 1, 33}};
  const int rows[] = {129, 64, 96, 33, 200, 260, 31, 300, 97, 65, 1};
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for (std::size_t i = 0; i < std::size(shapes); ++i) {
      ++turn;
      Product p(DType::float16, scheme, shapes[i], rows[i], 1, all_dtypes[turn % 3],
                turn % 4 == 0 ? 8 : 0);
      p.fill(static_cast<std::uint64_t>(turn));
      PlainTensor bias(DType::float16, {1, 1, rows[i]});
      bias.fill(normal_values(3));
      if (turn % 2 != 0) p.bias = &bias;
      if (turn % 5 == 0) {
        p.out.fill(normal_values(5));
        p.alpha = -1.5f;
        p.beta = 0.5f;
      }
      expect_plan_agrees(p);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaMultiplyHalf, EveryPlan) {
  int turn = 0;
  for (const int size : kernels::DecodeSm90Shape::token_sizes) {
    using Shape90 = kernels::DecodeSm90Shape;
    for (int warpgroups = Shape90::fewest_warpgroups; warpgroups <= Shape90::most_warpgroups(size);
         warpgroups += 2) {
      for (int parts = 0; 1 << parts <= warpgroups; ++parts) {
        for (const int ranks : {0, 1, 2}) {
          const Scheme scheme = all_schemes[++turn % std::size(all_schemes)];
          const DecodePlan plan = decode_sm90_plan(scheme, size, warpgroups, parts, ranks);
          if (plan.stages < 2) continue;  // no room
          Product p(DType::float16, scheme, {1, 2 * size - 3, 520}, 257, 1, DType::float32);
          p.fill(static_cast<std::uint64_t>(turn));
          p.plan = &plan;
          expect_agrees(p);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Where the plan is the chosen one.
TEST_F(CudaMultiplyHalf, LargeWeights) {
  struct Case {
    Scheme scheme;
    Shape x;
    int rows, gap;
  };
  const Case cases[] = {{Scheme::mxfp4, {1, 17, 640}, 52429, 8},
                        {Scheme::mxfp4, {1, 100, 200}, 17000, 0},
                        {Scheme::nvfp4, {2, 50, 200}, 8700, 0}};
  for (const Case& c : cases) {
    Product p(DType::float16, c.scheme, c.x, c.rows, 1, DType::float16, c.gap);
    p.fill(19);
    expect_agrees(p);
    if (HasFatalFailure()) return;
  }
}

TEST_F(CudaMultiplyHalf, LongSums) {
  for (const Scheme scheme : all_schemes) {
    for (const int tokens : {24, 128}) {
      Product p(DType::float16, scheme, {1, tokens, 8192}, 96, 1, DType::float32);
      p.fill(17);
      expect_plan_agrees(p);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaMultiplyHalf, BatchesAndStrides) {
  for (const std::int64_t batch : {1, 3}) {
    for (const int gap : {0, 8, 3}) {
      for (const int shift : {0, 1}) {
        Product p(DType::float16, Scheme::mxfp4, {3, 70, 320}, 72, batch, DType::float16, gap,
                  ScaleLayout::swizzled);
        p.fill(static_cast<std::uint64_t>(batch + gap));
        p.shift = shift;
        expect_agrees(p);
        if (HasFatalFailure()) return;
        p.prepared = false;
        expect_agrees(p);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Blocks far below the largest one of their row, at tokens so large that they count most: rows at
// which halves are just exact, and rows whose far blocks are put right at the end.
TEST_F(CudaMultiplyHalf, ScalesFarApart) {
  RandomBits random(7);
  for (const Scheme scheme : all_schemes) {
    if (facts_of(scheme).block == 16) continue;
    for (const int distance : {7, 8, 9, 13, 14, 15, 21, 22, 23, 24, 25, 26, 30, 45}) {
      for (const int tokens : {20, 130}) {
        Product p(DType::float16, scheme, {1, tokens, 256}, 40, 1, DType::float32);
        p.weights.fill_with_random_bytes(random);
        for (int row = 0; row < 40; ++row) {
          for (int k = 0; k < 256; ++k) {
            // Finite ones, all of them, the smallest among them.
            p.weights.set_code(0, row, k,
                               random.next() & (facts_of(scheme).bits == 4   ? 0xFu
                                                : facts_of(scheme).bits == 6 ? 0x3Fu
                                                                             : 0xFBu));
          }
          for (int block = 0; block < 8; ++block) {
            const int far = block == 3 || block == 6 ? distance - row % 3 : 0;
            p.weights.scale(0, row, block) =
                static_cast<std::uint8_t>((row % 7 == 0 ? 60 : 150) - far);
          }
        }
        const Values normal = normal_values(38);
        p.x.fill([&](std::int64_t batch, std::int64_t row, std::int64_t k) {
          const bool is_far = k / 32 == 3 || k / 32 == 6;
          return std::ldexp(normal(batch, row, k), is_far ? 13 : std::max(13 - distance, -10));
        });
        expect_plan_agrees(p);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Codes and scales that no quantizer makes, and blocks of zeros with any scale.
TEST_F(CudaMultiplyHalf, EveryCodeAndScale) {
  RandomBits random(23);
  for (const Scheme scheme : all_schemes) {
    for (const int tokens : {40, 130}) {
      for (const bool is_wide : {false, true}) {
        Product p(DType::float16, scheme, {1, tokens, 160}, 64, 1, DType::float32);
        p.fill(29);
        p.weights.fill_with_random_bytes(random);
        if (facts_of(scheme).block == 32) {
          for (auto& scale : p.weights.scales) {
            if (scale != 255) {
              scale = static_cast<std::uint8_t>(is_wide ? 64 + scale / 2 : 120 + scale / 32);
            }
          }
          for (int row = 0; row < 8; ++row) {
            p.weights.scale(0, row, 0) = row % 2 == 0 ? 0 : 200;
          }
          for (int row = 8; row < 24; ++row) {
            const int bytes[] = {0, 1, 127, 160, 161, 253, 254, 126};
            p.weights.scale(0, row, row % 5) = static_cast<std::uint8_t>(bytes[row % 8]);
            for (int k = 0; k < 32; ++k) p.weights.set_code(0, row, row % 5 * 32 + k, 0);
          }
        }
        expect_plan_agrees(p);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The smallest and the largest scales that rows may have.
TEST_F(CudaMultiplyHalf, SmallAndLargeScales) {
  for (const Scheme scheme : all_schemes) {
    if (facts_of(scheme).block == 16) continue;
    for (const int scale : {0, 1, 20, 40, 160, 161, 230}) {
      Product p(DType::float16, scheme, {1, 70, 192}, 40, 1, DType::float32);
      p.fill(31);
      for (int row = 0; row < 40; ++row) {
        for (int block = 0; block < 6; ++block) {
          p.weights.scale(0, row, block) = static_cast<std::uint8_t>(scale + block % 2);
        }
      }
      // Sums that are no subnormal numbers, whose last bits differ.
      p.alpha = scale < 64 ? 1.0f : 0x1p-60f;
      if (scale < 40) p.x.fill([&](auto, auto row, auto k) { return 30000.0 + row * 8 + k * 16; });
      expect_plan_agrees(p);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaMultiplyHalf, LargestSmallestAndInfiniteTokens) {
  for (const Scheme scheme : all_schemes) {
    for (const int tokens : {20, 70, 130}) {
      Product p(DType::float16, scheme, {1, tokens, 4096}, 70, 1, DType::float32);
      p.fill(31);
      const Values normal = normal_values(33);
      p.x.fill([&](std::int64_t batch, std::int64_t row, std::int64_t k) {
        if (row % 4 == 1) return normal(batch, row, k) > 0 ? 65504.0 : -65504.0;
        if (row % 4 == 2) return std::ldexp(std::floor(normal(batch, row, k) * 8.0), -24);
        return normal(batch, row, k);
      });
      p.weights.scale(0, 33, 1) = facts_of(scheme).nan_scale;
      p.x.set(0, 4, 100, std::numeric_limits<float>::quiet_NaN());
      p.x.set(0, 3, 7, std::numeric_limits<float>::infinity());
      expect_plan_agrees(p);
      if (HasFatalFailure()) return;
      for (int token = 0; token < tokens; ++token) {
        for (int row = 0; row < 70; ++row) {
          if (token == 3) continue;
          ASSERT_EQ(std::isnan(p.out.value(0, token, row)), row == 33 || token == 4)
              << token << ", " << row;
        }
      }
    }
  }
}

// Tokens that are subnormal halves alone: the tensor cores keep them.
TEST_F(CudaMultiplyHalf, SubnormalTokens) {
  for (const Scheme scheme : all_schemes) {
    Product p(DType::float16, scheme, {1, 70, 512}, 70, 1, DType::float32);
    p.fill(31);
    const Values normal = normal_values(35);
    p.x.fill([&](std::int64_t batch, std::int64_t row, std::int64_t k) {
      return std::ldexp(std::floor(normal(batch, row, k) * 64.0), -24);
    });
    expect_plan_agrees(p);
    if (HasFatalFailure()) return;
  }
}

TEST_F(CudaMultiplyHalf, SameBytesEveryTimeAndInGraphs) {
  for (const Scheme scheme : {Scheme::mxfp8_e4m3, Scheme::nvfp4}) {
    for (const int tokens : {70, 128, 200}) {
      Product p(DType::float16, scheme, {1, tokens, 4096}, 512, 1, DType::float32);
      p.fill(43);
      p.run();
      const std::vector<std::uint8_t> first = p.out.bytes;
      p.runs = 5;
      for (const bool prepared : {true, false}) {
        p.prepared = prepared;
        p.run();
        ASSERT_EQ(p.out.bytes, first);
      }
    }
  }
}

}  // namespace
}  // namespace mxkern
