// tests/cuda/quantize/rules_test.cc: what rules alone decide, on the device as on the CPU: random
// words of elements wherever they lie, and scales next to the largest numbers.
#include "tests/support/cuda/expect_cpu_bytes.h"

namespace mxkern {
namespace {

using namespace test;

using CudaQuantizeRules = CudaTest;

// Rows whose octets have a call of Philox each, and rows of other widths, whose octets and pairs of
// columns take words of two: in every kernel that rounds stochastically.
TEST_F(CudaQuantizeRules, RandomWordsOfEveryWidth) {
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for (const int columns : {5, 8, 24, 100, 102, 128, 130, 132, 136, 264, 1001}) {
        for (const int rows : {3, 130, 256}) {
          QuantizeOptions options;
          options.rounding = Rounding::stochastic;
          options.seed = 0xFEDCBA9876543210u;
          options.offset = ~std::uint64_t{0} - static_cast<std::uint64_t>(turn);
          options.block_shape = all_block_shapes[turn % 2];
          options.four_over_six = facts_of(scheme).has_tensor_scale && turn % 3 == 0;
          if (!facts_of(scheme).has_tensor_scale) options.scale_rule = all_scale_rules[turn % 4];
          Tensor x(dtype, {turn % 5 == 0 ? 2 : 1, rows, columns}, turn % 4 == 0 ? 3 : 0);
          ++turn;
          fill_mixed(x, static_cast<std::uint64_t>(turn), turn % 2 == 0);
          expect_cpu_bytes(
              x, {scheme, all_scale_layouts[turn / 2 % 2], options, options, turn % 7 == 0});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Where `even` carries beyond float32.
TEST_F(CudaQuantizeRules, AmaxNextToTheLargestNumber) {
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for (const Shape& shape : {Shape{1, 40, 150}, {1, 128, 256}, {1, 256, 384}, {1, 300, 4096}}) {
        for_each_option(scheme, [&](const QuantizeOptions& options) {
          Tensor x(dtype, shape);
          fill_near_largest(x, static_cast<std::uint64_t>(++turn));
          expect_cpu_bytes(x, {scheme, all_scale_layouts[turn % 2], options, options});
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace mxkern
