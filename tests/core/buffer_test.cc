// tests/core/buffer_test.cc: shapes and dense views.
#include "mxkern/core/buffer.h"

#include <gtest/gtest.h>

#include <cstddef>

namespace mxkern {
namespace {

TEST(Shape, CountsElementsBeyond32Bits) {
  EXPECT_EQ((Shape{3, 5, 7}).size(), 105);
  EXPECT_EQ((Shape{0, 5, 7}).size(), 0);
  EXPECT_EQ((Shape{2, 65536, 65536}).size(), std::int64_t{1} << 33);
}

TEST(Shape, TransposeSwapsRowsAndColumnsOfEachMatrix) {
  EXPECT_EQ((Shape{3, 5, 7}).transposed(), (Shape{3, 7, 5}));
  EXPECT_EQ((Shape{3, 5, 7}).transposed().transposed(), (Shape{3, 5, 7}));
}

TEST(Buffer, DenseStridesPutMatricesOneAfterTheOther) {
  float memory[1] = {};
  const Buffer view = Buffer::dense(memory, DType::float32, {2, 5, 7});
  EXPECT_EQ(view.data, memory);
  EXPECT_EQ(view.row_stride, 7);
  EXPECT_EQ(view.batch_stride, 35);
  EXPECT_EQ(view.device, (Device{DeviceType::cpu, 0}));

  const float* constant = memory;
  const Buffer input = Buffer::dense(constant, DType::float32, {1, 1, 1}, {DeviceType::cuda, 1});
  EXPECT_EQ(input.data, memory);
  EXPECT_EQ(input.device, (Device{DeviceType::cuda, 1}));
}

TEST(Buffer, IsDenseWhereStridesThatMeanSomethingLeaveNoGaps) {
  float memory[1] = {};
  Buffer x = Buffer::dense(memory, DType::float32, {2, 5, 7});
  EXPECT_TRUE(is_dense(x));
  EXPECT_TRUE(is_one_matrix(x));
  x.row_stride = 8;
  EXPECT_FALSE(is_dense(x));
  EXPECT_FALSE(is_one_matrix(x));
  x.batch_stride = 40;
  EXPECT_FALSE(is_dense(x));
  EXPECT_TRUE(is_one_matrix(x));
  x.shape = {1, 1, 7};
  EXPECT_TRUE(is_dense(x));
  x.shape = {2, 1, 7};
  EXPECT_FALSE(is_dense(x));
}

TEST(Buffer, StartsOnMultiplesOfBytes) {
  alignas(32) std::byte memory[64] = {};
  EXPECT_TRUE(starts_on(memory, 32));
  EXPECT_TRUE(starts_on(memory + 16, 16));
  EXPECT_FALSE(starts_on(memory + 16, 32));
  EXPECT_TRUE(starts_on(memory + 1, 1));
  EXPECT_TRUE(rows_start_on(memory, 8, 8));
  EXPECT_FALSE(rows_start_on(memory, 12, 8));
  EXPECT_FALSE(rows_start_on(memory + 4, 8, 8));
}

TEST(Device, HasNames) {
  EXPECT_STREQ(name_of(DeviceType::cpu), "cpu");
  EXPECT_STREQ(name_of(DeviceType::cuda), "cuda");
}

TEST(Buffer, OneMatrixIsOneWhateverItsBatchStride) {
  Buffer x{nullptr, DType::float32, {1, 5, 7}, 8, 3, {}};
  EXPECT_TRUE(is_one_matrix(x));
  x.shape.batch = 2;
  EXPECT_FALSE(is_one_matrix(x));
}

TEST(Buffer, RowsStartOn16Bytes) {
  alignas(32) std::byte memory[64] = {};
  const auto starts = [&](int first, DType dtype, Shape shape, std::int64_t row,
                          std::int64_t batch) {
    return starts_on_16({memory + first, dtype, shape, row, batch, {}});
  };
  EXPECT_TRUE(starts(0, DType::float32, {2, 2, 3}, 4, 12));
  EXPECT_TRUE(starts(16, DType::bfloat16, {2, 2, 3}, 8, 24));
  EXPECT_FALSE(starts(8, DType::float32, {2, 2, 3}, 4, 12));
  EXPECT_FALSE(starts(0, DType::float32, {2, 2, 3}, 5, 12));
  EXPECT_FALSE(starts(0, DType::bfloat16, {2, 2, 3}, 4, 24));
  EXPECT_FALSE(starts(0, DType::float32, {2, 2, 3}, 4, 13));
  EXPECT_TRUE(starts(0, DType::float32, {2, 1, 3}, 5, 12)) << "one row";
  EXPECT_TRUE(starts(0, DType::float32, {1, 2, 3}, 4, 13)) << "one matrix";
}

}  // namespace
}  // namespace mxkern
