// tests/cuda/decode/folded_dense_test.cc: matrices of few folded rows times reordered weights,
// against sums in double precision: every way to divide K, batches, and what the function chooses
// itself.
#include <cmath>
#include <string>
#include <vector>

#include "cuda/decode/multiply.h"
#include "cuda/gemm/gemm.h"
#include "cuda/operands/fold.h"
#include "plan/decode/limits.h"
#include "plan/gemm_cuda.h"
#include "tests/support/cuda/hopper_test.h"
#include "tests/support/cuda/operand.h"
#include "tests/support/cuda/prepared.h"
#include "tests/support/gemm_reference.h"

namespace mxkern {
namespace {

using namespace test;
using DecodeFoldedDense = HopperTest;

struct Product {
  QuantizedOperand a, b;
  PlainTensor out;
  GemmOptions options;

  Product(const Shape& x, std::int64_t n, std::int64_t batch, DType dtype, std::uint64_t seed,
          Scheme left = Scheme::mxfp8_e4m3)
      : a(left, x, ScaleLayout::row_major),
        b(Scheme::mxfp4, {batch, n, x.columns}, all_scale_layouts[seed % 2]),
        out(dtype, {x.batch, x.rows, n}) {
    a.quantize(normal_values(seed));
    b.quantize(normal_values(seed + 1));
    out.fill(normal_values(seed + 2));
    // Scales of a row as far apart as folded rows hold without a loss.
    for (std::int64_t i = 0; i < x.batch; ++i) {
      for (std::int64_t row = 0; row < x.rows; ++row) {
        for (std::int64_t block = 0; block < ceil_div(x.columns, 32); ++block) {
          a.scale(i, row, block) = static_cast<std::uint8_t>(118 + row % 9);
        }
      }
    }
    options.precision = GemmPrecision::folded;
    options.alpha = 0.75f;
    if (seed % 3 == 0) options.beta = -0.5f;
  }

  void expect_right(const Reference& wanted, const std::string& what) const {
    const double rounding = out.view.dtype == DType::float32    ? 0.0
                            : out.view.dtype == DType::bfloat16 ? 2e-3
                                                                : 3e-4;
    EXPECT_LE(relative_error(out, wanted), 5e-4 + rounding) << what;
  }
};

TEST_F(DecodeFoldedDense, EveryPlan) {
  std::uint64_t seed = 0;
  int computed = 0;
  for (const int tokens : {8, 16, 32, 64, 128}) {
    const int warpgroups = folded_warpgroups(tokens);
    for (int log2_ranks = 0; log2_ranks <= 2; ++log2_ranks) {
      for (int log2_parts = 0; 1 << log2_parts <= warpgroups; ++log2_parts) {
        const DecodePlan plan =
            decode_sm90_plan(Scheme::mxfp4, tokens, warpgroups, log2_parts, log2_ranks);
        if (plan.stages < 2) continue;
        for (const std::int64_t k : {40, 520, 1416}) {
          ++seed, ++computed;
          const std::int64_t rows =
              seed % 4 == 0 ? 2 * tokens + 3 : tokens - static_cast<int>(seed % 3);
          Product p({1, rows, k}, seed % 2 == 0 ? 300 : 131, 1, all_dtypes[seed % 3], seed);
          const Reference wanted = multiply(p.a, p.b, p.out, p.options);
          DeviceQuantizedOperand a(p.a), b(p.b);
          DevicePrepared left(PreparedForm::folded, a.view());
          DevicePrepared right(PreparedForm::few_tokens, b.view());
          const cuda::RowScaled x =
              cuda::folded_view(p.a.view.scheme, p.a.view.shape, left.bytes.data());
          const cuda::ReorderedWeights weights{Scheme::mxfp4, p.b.view.shape, right.bytes.data(),
                                               first_cuda_device};
          DeviceCopy memory(
              std::vector<std::uint8_t>(cuda::interleaved_bytes(p.a.view.shape), 0xFF));
          PlainTensor before = p.out;
          std::vector<std::uint8_t> first;
          for (int run = 0; run < 2; ++run) {
            DevicePlainTensor out(before);
            cuda::CoreFinish finish;
            finish.alpha = p.options.alpha;
            finish.beta = p.options.beta;
            finish.out = out.view();
            cuda::multiply_decode_folded(plan, "test", x, weights, finish, memory.data(), {});
            check_cuda(cudaDeviceSynchronize());
            out.copy_to(p.out);
            if (run == 0) first = p.out.bytes;
          }
          EXPECT_EQ(p.out.bytes, first);
          p.expect_right(wanted, std::to_string(tokens) + " rows, parts of K " +
                                     std::to_string(1 << log2_parts) + " in " +
                                     std::to_string(1 << log2_ranks) + ", K " + std::to_string(k));
          if (HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(computed, 60);
}

TEST_F(DecodeFoldedDense, IsWhatTheFunctionTakes) {
  std::uint64_t seed = 100;
  for (const Shape& x : {Shape{1, 1, 4096}, {1, 33, 264}, {3, 17, 96}, {1, 300, 640}}) {
    for (const std::int64_t batch : {std::int64_t{1}, x.batch}) {
      Product p(x, 200, batch, DType::bfloat16, ++seed, Scheme::mxfp6_e2m3);
      const Reference wanted = multiply(p.a, p.b, p.out, p.options);
      PlainTensor before = p.out;
      for (const bool is_ahead : {false, true}) {
        DeviceQuantizedOperand a(p.a), b(p.b);
        const DevicePrepared left(PreparedForm::folded, a.view());
        const DevicePrepared right(PreparedForm::few_tokens, b.view());
        DevicePlainTensor out(before);
        const GemmOperand rows = is_ahead ? GemmOperand(left.operand) : GemmOperand(a.view());
        const CudaGemmPlan plan =
            plan_gemm_cuda({rows, right.operand, out.view(), p.options},
                           cuda::gemm_capabilities("test", first_cuda_device));
        EXPECT_EQ(plan.path, CudaGemmPath::few_folded);
        DeviceCopy memory(std::vector<std::uint8_t>(plan.workspace_bytes + 256, 0xFF));
        gemm(rows, right.operand, out.view(), p.options, {memory.data(), plan.workspace_bytes});
        check_cuda(cudaDeviceSynchronize());
        out.copy_to(p.out);
        p.expect_right(wanted, is_ahead ? "folded ahead" : "codes");
      }
    }
  }
}

}  // namespace
}  // namespace mxkern
