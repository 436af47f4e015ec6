// tests/cuda/gemm/grouped_gemm_test.cc: grouped products against sums in double precision: both
// kernels, all plans, ends that only the device knows, and ends that are wrong.
#include "mxkern/grouped_gemm.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cuda/decode/grouped.h"
#include "mxkern/core/error.h"
#include "mxkern/kernels/decode/shared_memory.h"
#include "plan/grouped.h"
#include "tests/support/cuda/grouped_product.h"
#include "tests/support/cuda/ends_of_a_node.h"
#include "tests/support/cuda/hopper_test.h"

namespace mxkern {
namespace {

using namespace test;

using CudaGroupedGemm = CudaTest;
using CudaGroupedGemmByPlans = HopperTest;

// Groups without rows, at the ends too, and rows without a group.
const std::vector<std::int32_t> ends = {0, 3, 3, 21, 22, 38, 38};

template <class Left>
void expect_every_way(GroupedProduct<Left>&& p, std::uint64_t seed) {
  p.fill(seed);
  if (seed % 2 == 0) p.add_factors_and_biases(all_dtypes[seed % 3], seed % 4 == 0 ? 3 : 0);
  if (seed % 4 < 2) p.add_output(seed % 4 == 1 ? 1.0f : -0.5f);
  p.alpha = 0.5f;
  const Reference wanted = p.wanted();
  for (const PreparedForm form : all_prepared_forms) {
    if (form == PreparedForm::folded || form == PreparedForm::panels) continue;
    OnDevice device(p);
    device.prepare(form);
    device.run();
    ASSERT_TRUE(is_right(p, wanted, name_of(form)));
  }
  OnDevice device(p);
  device.run_as(capabilities_of("sm_80"));
  ASSERT_TRUE(is_right(p, wanted, "portable"));
}

TEST_F(CudaGroupedGemm, EverySchemeWithEveryKindOfRows) {
  std::uint64_t seed = 0;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      const DType out = all_dtypes[++seed % 3];
      expect_every_way(plain_product(dtype, {1, 41, 130}, scheme, 35, ends, out,
                                     static_cast<std::int64_t>(seed % 3) * 4),
                       seed);
      if (HasFatalFailure()) return;
    }
    for (const Scheme left : {Scheme::mxfp8_e4m3, Scheme::mxint8, Scheme::nvfp4}) {
      ++seed;
      expect_every_way(quantized_product(left, {1, 41, 96}, scheme, 64, ends, DType::float32,
                                         all_scale_layouts[seed % 2]),
                       seed);
      if (HasFatalFailure()) return;
    }
  }
}

// Rows of which every eighth or so starts on 16 bytes, and ones of which none does.
TEST_F(CudaGroupedGemm, RowsAnywhere) {
  for (const std::int64_t gap : {1, 5, 8}) {
    auto p = plain_product(DType::bfloat16, {1, 50, 264}, Scheme::mxfp4, 96, {20, 49},
                           DType::bfloat16, gap);
    p.fill(static_cast<std::uint64_t>(gap));
    if (gap == 5) p.add_output(0.5f);
    const Reference wanted = p.wanted();
    OnDevice device(p);
    device.prepare(PreparedForm::few_tokens);
    device.run();
    ASSERT_TRUE(is_right(p, wanted, "gap " + std::to_string(gap)));
  }
}

// By kernels for few rows of a group and for many, whose outputs go their own ways.
TEST_F(CudaGroupedGemm, AddsWhatIsThere) {
  for (const DType dtype : all_dtypes) {
    for (const std::int32_t rows : {6, 12, 20, 60, 200}) {
      auto p = plain_product(DType::bfloat16, {1, 2 * rows + 9, 136}, Scheme::mxfp4, 96,
                             {rows, 2 * rows}, dtype);
      p.fill(static_cast<std::uint64_t>(rows));
      p.add_factors_and_biases(DType::float32, 0);
      p.add_output(0.75f);
      const Reference wanted = p.wanted();
      OnDevice device(p);
      device.prepare(PreparedForm::few_tokens);
      device.run();
      ASSERT_TRUE(is_right(p, wanted, std::to_string(rows) + " rows a group"));
    }
  }
}

// Ends are read by 32 at a time.
TEST_F(CudaGroupedGemm, ManyGroups) {
  for (const int count : {31, 32, 33, 64, 100}) {
    std::vector<std::int32_t> many;
    for (int i = 0; i < count; ++i) many.push_back((i + 1) / 3 * 2 + i / 40 * 30);
    const std::int64_t rows = many.back() + count % 2 * 70;
    auto p =
        plain_product(DType::bfloat16, {1, rows, 64}, Scheme::mxfp8_e4m3, 33, many, DType::float32);
    p.fill(static_cast<std::uint64_t>(count));
    const Reference wanted = p.wanted();
    OnDevice device(p);
    device.prepare(PreparedForm::few_tokens);
    device.run();
    ASSERT_TRUE(is_right(p, wanted, std::to_string(count) + " groups"));
    device.run_as(capabilities_of("sm_80"));
    ASSERT_TRUE(is_right(p, wanted, std::to_string(count) + " groups, portable"));
  }
}

// Rows of one group that take more than one thread block, and groups of many sizes, by every plan.
TEST_F(CudaGroupedGemmByPlans, EveryPlan) {
  int turn = 0, computed = 0;
  const auto expect = [&](const DecodePlan& plan) {
    if (plan.stages < 2) return;
    const Scheme scheme = all_schemes[++turn % std::size(all_schemes)];
    const SchemeFacts facts = facts_of(scheme);
    const DecodePlan own =
        plan.on_sm90 ? decode_sm90_plan(scheme, plan.tokens, grouped_warpgroups(plan.tokens),
                                        plan.log2_parts, 0)
                     : decode_groups_plan(scheme, plan.tokens, plan.row_tiles, plan.log2_parts);
    if (own.stages < 2 ||
        (!own.on_sm90 && own.row_tiles << own.log2_parts >
                             kernels::DecodeShape{facts.bits, facts.block, own.tokens}.warps())) {
      return;
    }
    ++computed;
    const DType dtype = turn % 3 == 0 ? DType::float16 : DType::bfloat16;
    const std::int32_t t = plan.tokens;
    auto p = plain_product(dtype, {1, 5 * t + 9, turn % 2 == 0 ? 520 : 200}, scheme,
                           turn % 4 == 0 ? 300 : 131, {t, t, 3 * t + 1, 3 * t + 2, 5 * t + 2},
                           all_dtypes[turn % 3]);
    p.fill(static_cast<std::uint64_t>(turn));
    if (turn % 2 == 0) p.add_factors_and_biases(DType::float32, 0);
    if (turn % 3 == 0) p.b.scale(2, 40, 0) = facts.nan_scale;
    const Reference wanted = p.wanted();
    OnDevice device(p);
    device.prepare(PreparedForm::few_tokens);
    cuda::CoreFinish finish;
    finish.out = device.out.view();
    if (facts.has_tensor_scale) finish.right_tensor_scale = device.b.view().tensor_scale;
    cuda::DeviceGroups groups = device.groups_for(finish);
    const cuda::ReorderedWeights weights{scheme, p.b.view.shape, device.prepared->bytes.data(),
                                         first_cuda_device};
    for (int run = 0; run < 2; ++run) {
      groups.are_complete = run == 1;
      cuda::multiply_grouped_by(own, "test", device.a.view(), weights, groups, finish, {}, {});
      check_cuda(cudaDeviceSynchronize());
      const std::vector<std::uint8_t> before = p.out.bytes;
      device.out.copy_to(p.out);
      if (run == 1) {
        EXPECT_EQ(p.out.bytes, before);
      }
    }
    ASSERT_TRUE(is_right(p, wanted,
                         "groups of " + std::to_string(own.tokens) + ", " +
                             std::to_string(own.row_tiles) + " tiles, " +
                             std::to_string(1 << own.log2_parts) + " parts"));
  };
  for (int round = 0; round < 3; ++round) {
    for (const int tokens : {8, 16}) {
      for (int log2_parts = 0; log2_parts <= 3; ++log2_parts) {
        for (const int tiles : {1, 2, 3, 8}) {
          expect(decode_groups_plan(Scheme::mxfp4, tokens, tiles, log2_parts));
          if (HasFatalFailure()) return;
        }
      }
    }
    for (const int tokens : {32, 64, 128}) {
      expect(decode_sm90_plan(Scheme::mxfp4, tokens, grouped_warpgroups(tokens), 0, 0));
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(computed, 50);
}

// A thread block's box of rows ends among those of the next group, or behind all: NaN and
// infinities stay in their rows. Groups of every size that there is a box for, and of more.
TEST_F(CudaGroupedGemm, RowsBesideThoseOfOtherGroups) {
  for (const int count : {9, 23}) {
    std::vector<std::int32_t> many;
    for (int i = 0; i < count; ++i) many.push_back((many.empty() ? 0 : many.back()) + i % 18);
    auto p = plain_product(DType::bfloat16, {1, many.back(), 200}, Scheme::mxfp4, 72, many,
                           DType::float32);
    p.fill(static_cast<std::uint64_t>(count));
    for (std::size_t i = 0; i < many.size(); i += 3) {
      const std::int64_t row = many[i] - 1;
      if (row >= 0) {
        p.a.set(0, row, 7 + static_cast<std::int64_t>(i),
                i % 2 == 0 ? std::numeric_limits<float>::quiet_NaN()
                           : std::numeric_limits<float>::infinity());
      }
    }
    const Reference wanted = p.wanted();
    OnDevice device(p);
    device.prepare(PreparedForm::few_tokens);
    device.run();
    ASSERT_TRUE(is_right(p, wanted, std::to_string(count) + " groups"));
  }
}

TEST_F(CudaGroupedGemm, WrongEndsPoisonEverything) {
  const std::vector<std::vector<std::int32_t>> wrong = {
      {5, 4, 20}, {-1, 4, 20}, {5, 6, 31}, {5, 2147483647, 20}, {-2147483647 - 1, 0, 3}};
  for (const std::vector<std::int32_t>& given : wrong) {
    for (const bool is_portable : {false, true}) {
      auto p =
          plain_product(DType::bfloat16, {1, 30, 64}, Scheme::mxfp4, 40, given, DType::bfloat16, 8);
      p.fill(4);
      p.out.fill([](auto, auto, auto) { return 1.0; });
      OnDevice device(p);
      device.prepare(PreparedForm::few_tokens);
      device.run_as(is_portable ? capabilities_of("sm_80")
                                : cuda::gemm_capabilities("test", first_cuda_device));
      for (int row = 0; row < 30; ++row) {
        for (int column = 0; column < 40; ++column) {
          ASSERT_TRUE(std::isnan(p.out.value(0, row, column))) << row << ", " << column;
        }
      }
    }
  }
}

TEST_F(CudaGroupedGemm, ShapesThatHaveLittle) {
  const auto expect = [](GroupedProduct<PlainTensor>&& p) {
    p.fill(6);
    const Reference wanted = p.wanted();
    for (const bool is_portable : {false, true}) {
      OnDevice device(p);
      device.run_as(is_portable ? capabilities_of("sm_80")
                                : cuda::gemm_capabilities("test", first_cuda_device));
      EXPECT_TRUE(is_right(p, wanted, is_portable ? "portable" : "own"));
    }
  };
  expect(plain_product(DType::bfloat16, {1, 5, 0}, Scheme::mxfp4, 7, {2, 4}, DType::float32));
  expect(plain_product(DType::bfloat16, {1, 5, 64}, Scheme::mxfp4, 7, {}, DType::float32));
  expect(plain_product(DType::bfloat16, {1, 0, 64}, Scheme::mxfp4, 7, {0, 0}, DType::float32));
  expect(plain_product(DType::bfloat16, {1, 5, 64}, Scheme::mxfp4, 0, {2, 4}, DType::float32));
  expect(plain_product(DType::bfloat16, {1, 1, 1}, Scheme::mxfp4, 1, {1}, DType::float32));
}

// NaN of one group's weights and of a row stay there. Poisoned weights of a group without rows are
// of no account.
TEST_F(CudaGroupedGemm, NanStaysInItsGroup) {
  for (const Scheme scheme : {Scheme::mxfp4, Scheme::mxfp8_e5m2}) {
    for (const std::int32_t more : {0, 60}) {
      auto p = plain_product(DType::bfloat16, {1, 9 + more, 64}, scheme, 40, {2, 5, 5, 9 + more},
                             DType::float32);
      p.fill(8);
      p.b.scale(1, 4, 0) = 0xFF;
      p.b.scale(2, 5, 0) = 0xFF;
      p.a.set(0, 7, 3, std::numeric_limits<float>::quiet_NaN());
      for (const bool is_portable : {false, true}) {
        OnDevice device(p);
        device.prepare(PreparedForm::few_tokens);
        device.run_as(is_portable ? capabilities_of("sm_80")
                                  : cuda::gemm_capabilities("test", first_cuda_device));
        for (int row = 0; row < 9 + more; ++row) {
          for (int column = 0; column < 40; ++column) {
            const bool is_nan = row == 7 || (row >= 2 && row < 5 && column == 4);
            ASSERT_EQ(std::isnan(p.out.value(0, row, column)), is_nan) << row << ", " << column;
          }
        }
      }
    }
  }
}

// Outputs that are computed element by element, of rows far into all rows and of a group that is
// not the first: tokens that would not be finite beside 2^96, infinite codes, and scales that leave
// no room for a factor.
TEST_F(CudaGroupedGemm, HugeValues) {
  for (const Scheme scheme : {Scheme::mxfp4, Scheme::mxfp8_e5m2}) {
    for (const DType dtype : {DType::bfloat16, DType::float16}) {
      for (const std::int32_t rows : {6, 20, 60, 200}) {
        auto p = plain_product(dtype, {1, 3 * rows + 2, 96}, scheme, 40, {rows, 2 * rows, 3 * rows},
                               DType::float32);
        p.fill(static_cast<std::uint64_t>(rows));
        p.b.scale(1, 5, 1) = 127 + 60;
        p.b.scale(2, 7, 2) = 1;
        if (scheme == Scheme::mxfp8_e5m2) p.b.set_code(2, 9, 3, 0x7C);
        if (dtype == DType::bfloat16) {
          p.a.set(0, rows + 2, 33, 0x1p40f);
          p.a.set(0, 2 * rows + 1, 60, -0x1p70f);
        }
        const Reference wanted = p.wanted();
        OnDevice device(p);
        device.prepare(PreparedForm::few_tokens);
        device.run();
        ASSERT_TRUE(agrees(p.out, wanted, std::to_string(rows) + " rows a group"));
      }
    }
  }
}

const Shape rows_of_a_node = {1, 48, 256};

TEST_F(CudaGroupedGemm, EndsOfAKernelAhead) {
  expect_ends_of_a_node_ahead(plain_product(DType::bfloat16, rows_of_a_node, Scheme::nvfp4, 96,
                                            {11, 12, 40}, DType::bfloat16),
                              PreparedForm::few_tokens);
}

TEST_F(CudaGroupedGemmByPlans, EndsOfAKernelAheadOfAFoldedProduct) {
  auto p = quantized_product(Scheme::mxfp8_e4m3, rows_of_a_node, Scheme::mxfp4, 96, {11, 12, 40},
                             DType::bfloat16, ScaleLayout::row_major);
  p.precision = GemmPrecision::folded;
  expect_ends_of_a_node_ahead(std::move(p), PreparedForm::folded);
}

}  // namespace
}  // namespace mxkern
