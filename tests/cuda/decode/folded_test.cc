// tests/cuda/decode/folded_test.cc: folded rows times reordered weights against sums in double
// precision: all sizes, scales that lie far apart, NaN, and what is far outside of float32.
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "cuda/decode/grouped.h"
#include "cuda/operands/fold.h"
#include "plan/decode/limits.h"
#include "plan/grouped.h"
#include "tests/support/cuda/ends_of_a_node.h"
#include "tests/support/cuda/grouped_product.h"
#include "tests/support/cuda/hopper_test.h"

namespace mxkern {
namespace {

using namespace test;
using DecodeFolded = HopperTest;

GroupedProduct<QuantizedOperand> folded_product(Scheme left, Shape x, std::int64_t n,
                                                std::vector<std::int32_t> ends, DType dtype,
                                                std::int64_t gap = 0) {
  GroupedProduct<QuantizedOperand> p(QuantizedOperand(left, x, ScaleLayout::row_major),
                                     Scheme::mxfp4, n, std::move(ends), dtype, gap);
  p.precision = GemmPrecision::folded;
  return p;
}

// Scales of the left operand within what folded rows hold: a row's lie up to `octaves` apart.
void narrow_scales(QuantizedOperand& x, int octaves) {
  const Shape& shape = x.view.shape;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t block = 0; block < ceil_div(shape.columns, 32); ++block) {
      x.scale(0, row, block) =
          static_cast<std::uint8_t>(120 + row % 5 - (row + block) % (octaves + 1));
    }
  }
}

TEST_F(DecodeFolded, EverySize) {
  int turn = 0;
  for (const Scheme left : {Scheme::mxfp8_e4m3, Scheme::mxfp6_e2m3}) {
    for (const int tokens : {8, 16, 32, 64, 128}) {
      for (const std::int64_t k : {32, 96, 200, 520, 1160}) {
        ++turn;
        const std::int32_t t = tokens;
        auto p = folded_product(left, {1, 5 * t + 9, k}, turn % 2 == 0 ? 300 : 131,
                                {t, t, 3 * t + 1, 3 * t + 2, 5 * t + 2}, all_dtypes[turn % 3],
                                turn % 4 == 0 ? 3 : 0);
        p.fill(static_cast<std::uint64_t>(turn));
        narrow_scales(p.a, turn % 3);
        if (turn % 2 == 0) p.add_factors_and_biases(DType::float32, 0);
        if (turn % 5 < 2) p.add_output(turn % 5 == 0 ? 1.0f : -0.5f);
        p.alpha = 0.5f;
        const Reference wanted = p.wanted();
        OnDevice device(p);
        device.prepare(PreparedForm::few_tokens);
        device.prepare_left(PreparedForm::folded);
        cuda::CoreFinish finish;
        finish.alpha = p.alpha;
        finish.beta = p.beta;
        const cuda::DeviceGroups groups = device.groups_for(finish);
        const cuda::ReorderedWeights weights{Scheme::mxfp4, p.b.view.shape,
                                             device.prepared->bytes.data(), first_cuda_device};
        const cuda::RowScaled rows =
            cuda::folded_view(left, p.a.view.shape, device.prepared_left->bytes.data());
        DeviceCopy memory(std::vector<std::uint8_t>(cuda::interleaved_bytes(p.a.view.shape), 0xFF));
        const DecodePlan plan =
            decode_sm90_plan(Scheme::mxfp4, tokens, folded_warpgroups(tokens), 0, 0);
        ASSERT_GE(plan.stages, 2);
        std::vector<std::uint8_t> first;
        for (int run = 0; run < 2; ++run) {
          DevicePlainTensor out(p.output_before());
          finish.out = out.view();
          cuda::multiply_grouped_folded(plan, "test", rows, weights, groups, finish, memory.data(),
                                        {});
          check_cuda(cudaDeviceSynchronize());
          out.copy_to(p.out);
          if (run == 0) first = p.out.bytes;
        }
        EXPECT_EQ(p.out.bytes, first);
        ASSERT_TRUE(is_right(
            p, wanted, std::to_string(tokens) + " rows a thread block, K " + std::to_string(k)));
      }
    }
  }
}

// By the function itself: from codes and from what was prepared of them, in a group's order.
TEST_F(DecodeFolded, IsWhatTheFunctionTakes) {
  for (const std::int32_t rows : {1, 6, 40, 100, 300}) {
    auto p = folded_product(Scheme::mxfp8_e4m3, {1, 3 * rows + 2, 264}, 136,
                            {rows, 2 * rows, 2 * rows, 3 * rows}, DType::bfloat16, 8);
    p.fill(static_cast<std::uint64_t>(rows));
    narrow_scales(p.a, 1);
    const Reference wanted = p.wanted();
    OnDevice device(p);
    device.prepare(PreparedForm::few_tokens);
    EXPECT_EQ(plan_grouped_cuda(device.left(), device.right(), device.groups(), p.precision,
                                cuda::gemm_capabilities("test", first_cuda_device))
                  .path,
              GroupedPath::few_folded);
    device.run();
    ASSERT_TRUE(is_right(p, wanted, "codes"));
    device.prepare_left(PreparedForm::folded);
    device.run();
    ASSERT_TRUE(is_right(p, wanted, "folded rows"));
  }
}

// Each output is a row of weights by itself: those of rows whose scales lie far apart are as good
// as others, also where their largest blocks meet zeros, and all that is left is small.
TEST_F(DecodeFolded, ScalesFarApart) {
  constexpr int octaves[] = {0, 8, 15, 16, 17, 23, 28, 29, 40, 100, 250};
  for (const bool meets_zeros : {false, true}) {
    for (const int top : {254, 160, 127}) {
      auto p = folded_product(Scheme::mxfp8_e4m3, {1, 24, 256}, 11 * 16, {8, 24}, DType::float32);
      p.fill(static_cast<std::uint64_t>(top));
      narrow_scales(p.a, 0);
      for (std::int64_t row = 0; row < 24; ++row) {
        for (std::int64_t block = 0; block < 8; ++block) p.a.scale(0, row, block) = 254 - top + 20;
        if (!meets_zeros) continue;
        for (int i = 0; i < 64; ++i) p.a.set_code(0, row, i, 0);
      }
      for (std::int64_t group = 0; group < 2; ++group) {
        for (std::int64_t n = 0; n < 11 * 16; ++n) {
          for (std::int64_t block = 0; block < 8; ++block) {
            const int lower = octaves[n / 16] * static_cast<int>(block) / 7;
            p.b.scale(group, n, block) =
                static_cast<std::uint8_t>(higher_of(top - (block < 2 ? 0 : lower), 0));
          }
        }
      }
      const Reference wanted = p.wanted();
      OnDevice device(p);
      device.prepare(PreparedForm::few_tokens);
      device.run();
      for (std::int64_t n = 0; n < 11 * 16; ++n) {
        for (std::int64_t first : {0, 8}) {
          double error = 0.0, norm = 0.0;
          for (std::int64_t row = first; row < (first == 0 ? 8 : 24); ++row) {
            const double want = wanted.at(0, row, n).value;
            error += std::pow(p.out.value(0, row, n) - want, 2);
            norm += want * want;
          }
          if (norm < 1e-70) continue;  // beyond float32
          ASSERT_LE(std::sqrt(error / norm), 2e-3)
              << octaves[n / 16] << " octaves below " << top << ", output " << n;
        }
      }
    }
  }
}

TEST_F(DecodeFolded, NanStaysWhereItIs) {
  for (const std::int32_t more : {0, 60, 200}) {
    auto p = folded_product(Scheme::mxfp8_e4m3, {1, 9 + more, 96}, 40, {2, 5, 5, 9 + more},
                            DType::float32);
    p.fill(8);
    narrow_scales(p.a, 0);
    p.b.scale(1, 4, 0) = 0xFF;
    p.b.scale(2, 5, 0) = 0xFF;
    p.a.scale(0, 7, 1) = 0xFF;
    OnDevice device(p);
    device.prepare(PreparedForm::few_tokens);
    device.run();
    for (int row = 0; row < 9 + more; ++row) {
      for (int column = 0; column < 40; ++column) {
        const bool is_nan = row == 7 || (row >= 2 && row < 5 && column == 4);
        ASSERT_EQ(std::isnan(p.out.value(0, row, column)), is_nan) << row << ", " << column;
      }
    }
  }
}

TEST_F(DecodeFolded, EndsOfAKernelAhead) {
  auto p = folded_product(Scheme::mxfp8_e4m3, {1, 48, 256}, 96, {11, 12, 40}, DType::bfloat16);
  expect_ends_of_a_node_ahead(std::move(p), PreparedForm::few_tokens, PreparedForm::folded);
}

TEST_F(DecodeFolded, WrongEndsPoisonEverything) {
  for (const auto& given : {std::vector<std::int32_t>{5, 4, 20}, {5, 6, 31}}) {
    auto p = folded_product(Scheme::mxfp8_e4m3, {1, 30, 64}, 40, given, DType::bfloat16, 8);
    p.fill(4);
    p.out.fill([](auto, auto, auto) { return 1.0; });
    OnDevice device(p);
    device.prepare(PreparedForm::few_tokens);
    device.run();
    for (int row = 0; row < 30; ++row) {
      for (int column = 0; column < 40; ++column) {
        ASSERT_TRUE(std::isnan(p.out.value(0, row, column))) << row << ", " << column;
      }
    }
  }
}

}  // namespace
}  // namespace mxkern
