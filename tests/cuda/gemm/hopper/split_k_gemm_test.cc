// tests/cuda/gemm/hopper/split_k_gemm_test.cc: products whose tiles are divided along K, whatever
// was prepared.
#include <cmath>
#include <cstring>
#include <vector>

#include "plan/gemm_cuda.h"
#include "tests/support/cuda/prepared.h"
#include "tests/support/cuda/hopper_test.h"
#include "tests/support/random_bits.h"

namespace mxkern {
namespace {

using namespace test;

// MXFP8 E4M3 without NaN; block scales of a row lie within `spread` octaves.
QuantizedOperand random_operand(std::int64_t rows, std::int64_t columns, int spread,
                                std::uint64_t seed) {
  QuantizedOperand operand(Scheme::mxfp8_e4m3, {1, rows, columns}, ScaleLayout::row_major);
  RandomBits random(seed);
  for (auto& code : operand.codes) {
    code = static_cast<std::uint8_t>(random.between(0, 255));
    if (code % 128 == 127) code -= 1;
  }
  for (auto& scale : operand.scales) {
    scale = static_cast<std::uint8_t>(120 - random.between(0, spread));
  }
  return operand;
}

using DividedGemm = HopperTest;

// Relative L2, of float32.
double distance(const std::vector<std::uint8_t>& got, const std::vector<std::uint8_t>& wanted) {
  double errors = 0, squares = 0;
  for (std::size_t i = 0; i < got.size(); i += sizeof(float)) {
    float value = 0, exact = 0;
    std::memcpy(&value, got.data() + i, sizeof(float));
    std::memcpy(&exact, wanted.data() + i, sizeof(float));
    const double error = static_cast<double>(value) - static_cast<double>(exact);
    errors += error * error;
    squares += static_cast<double>(exact) * static_cast<double>(exact);
  }
  return std::sqrt(errors / squares);
}

TEST_F(DividedGemm, BytesDoNotDependOnWhatWasPrepared) {
  for (const std::int64_t m : {100, 300}) {
    const std::int64_t n = 1000, k = 8192;
    QuantizedOperand host_a = random_operand(m, k, 6, 1), host_b = random_operand(n, k, 6, 2);
    DeviceQuantizedOperand a(host_a), b(host_b);
    PlainTensor out(DType::float32, {1, m, n});
    std::vector<std::uint8_t> results[2];
    for (const bool is_folded : {false, true}) {
      const GemmOptions options{.precision =
                                    is_folded ? GemmPrecision::folded : GemmPrecision::exact};
      const PreparedForm form = is_folded ? PreparedForm::folded : PreparedForm::expanded;
      const GemmProblem problem{a.view(), b.view(), DevicePlainTensor(out).view(),
                                options.precision};
      ASSERT_GT(plan_gemm_cuda(problem, capabilities_).part_bytes, 0) << "no tile is divided";
      DevicePrepared left(form, a.view()), right(form, b.view());
      std::vector<std::uint8_t>& wanted = results[is_folded ? 1 : 0];
      wanted = product(a.view(), b.view(), out, options);
      for (int turn = 0; turn < 3; ++turn) {
        EXPECT_EQ(product(left.operand, b.view(), out, options), wanted);
        EXPECT_EQ(product(a.view(), right.operand, out, options), wanted);
        EXPECT_EQ(product(left.operand, right.operand, out, options), wanted);
      }
    }
    EXPECT_LE(distance(results[1], results[0]), 5e-4);
    EXPECT_GT(distance(results[1], results[0]), 0.0);
  }
}

// Both halves are divided, and share the memory for it; the one that returns leaves it alone.
TEST_F(DividedGemm, EitherHalf) {
  const std::int64_t m = 300, n = 1000, k = 8192;
  for (const int spread : {6, 20}) {
    QuantizedOperand host_a = random_operand(m, k, spread, 1), host_b = random_operand(n, k, 2, 2);
    DeviceQuantizedOperand a(host_a), b(host_b);
    const PlainTensor out(DType::bfloat16, {1, m, n});
    const auto bytes = [&](GemmPrecision precision) {
      return product(a.view(), b.view(), out, {.precision = precision});
    };
    EXPECT_EQ(bytes(GemmPrecision::automatic),
              bytes(spread > 8 ? GemmPrecision::exact : GemmPrecision::folded));
  }
}

}  // namespace
}  // namespace mxkern
