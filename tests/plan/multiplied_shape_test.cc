// tests/plan/multiplied_shape_test.cc: which batches of a product on a GPU are multiplied as one
// matrix.
#include <gtest/gtest.h>

#include "plan/gemm_cuda.h"
#include "tests/support/gemm_case.h"

namespace mxkern {
namespace {

using namespace test;

TEST(MultipliedShapeTest, ABatchThatSharesItsRightOperandIsOneMatrix) {
  const Shape shape{3, 40, 64};
  const auto shape_of_product = [&](const GemmOperand& left, std::int64_t right_batch,
                                    std::int64_t gap) {
    Buffer out = plain(DType::bfloat16, {3, 40, 128});
    out.batch_stride += gap;
    return multiplied_shape(
        {left, quantized(Scheme::mxfp8_e4m3, {right_batch, 128, 64}), out, GemmPrecision::exact});
  };
  const GemmOperand codes = quantized(Scheme::mxfp8_e4m3, shape);
  const Shape one{1, 120, 128}, three{3, 40, 128};
  EXPECT_EQ(shape_of_product(codes, 1, 0), one);
  EXPECT_EQ(shape_of_product(codes, 3, 0), three);
  EXPECT_EQ(shape_of_product(codes, 1, 128), three) << "the output has a gap";
  Buffer x = plain(DType::bfloat16, shape);
  EXPECT_EQ(shape_of_product(x, 1, 0), one);
  x.batch_stride += 64;
  EXPECT_EQ(shape_of_product(x, 1, 0), three) << "rows as they lie have a gap";
  x.dtype = DType::float16;
  EXPECT_EQ(shape_of_product(x, 1, 0), one) << "rows that are copied";
  x.dtype = DType::bfloat16;
  x.batch_stride = 0;
  EXPECT_EQ(shape_of_product(x, 1, 0), three) << "one matrix for all";
}

TEST(MultipliedShapeTest, OneMatrixHasAtMostTwoToTheThirtyRows) {
  constexpr std::int64_t rows = std::int64_t{1} << 29;
  const auto batch_of = [](std::int64_t batch) {
    return multiplied_shape({quantized(Scheme::mxfp8_e4m3, {batch, rows, 64}),
                             quantized(Scheme::mxfp8_e4m3, {1, 128, 64}),
                             plain(DType::bfloat16, {batch, rows, 128}), GemmPrecision::exact})
        .batch;
  };
  EXPECT_EQ(batch_of(2), 1);
  EXPECT_EQ(batch_of(3), 3);
}

}  // namespace
}  // namespace mxkern
