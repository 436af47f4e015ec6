// tests/ops/combine_test.cc: sums of the rows of each token on the CPU, in their order, and what is
// refused.
#include "mxkern/combine.h"

#include <gtest/gtest.h>

#include <vector>

#include "mxkern/core/error.h"
#include "mxkern/threads.h"
#include "tests/support/error_message.h"
#include "tests/support/gemm_reference.h"

namespace mxkern {
namespace {

using namespace test;

// In the order of the rows, each product and each sum rounded to float32.
void add_up(const PlainTensor& y, const std::vector<std::int32_t>& rows, const float* weights,
            PlainTensor& out) {
  const Shape shape = out.view.shape;
  for (std::int64_t t = 0; t < shape.rows; ++t) {
    for (std::int64_t k = 0; k < shape.columns; ++k) {
      float sum = 0.0f;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i] != t) continue;
        const float value = static_cast<float>(y.value(0, static_cast<std::int64_t>(i), k));
        const float product = (weights == nullptr ? 1.0f : weights[i]) * value;
        sum += product;
      }
      out.set(0, t, k, sum);
    }
  }
}

void run(PlainTensor& y, const std::vector<std::int32_t>& rows, const float* weights,
         PlainTensor& out) {
  const AlignedMemory memory(combine_workspace_bytes(y.view.shape.rows, out.view.shape.rows));
  combine(y.buffer(), rows.data(), weights, out.buffer(), memory.workspace());
}

TEST(Combine, IsTheSumInTheOrderOfRows) {
  for (const DType from : all_dtypes) {
    for (const DType to : all_dtypes) {
      for (const std::int64_t columns : {1, 8, 255, 300}) {
        PlainTensor y(from, {1, 70, columns}, 3), out(to, {1, 9, columns}, 2), wanted = out;
        y.fill(normal_values(static_cast<std::uint64_t>(columns)));
        std::vector<std::int32_t> rows;
        std::vector<float> weights;
        for (int i = 0; i < 70; ++i) {
          rows.push_back(
              i % 3 == 0 ? 4 : i * 5 % 8 - 1);  // most of one, some of none, token 8 has none
          weights.push_back(static_cast<float>(i) * 0.37f - 9.0f);
        }
        for (const float* given : std::initializer_list<const float*>{nullptr, weights.data()}) {
          run(y, rows, given, out);
          add_up(y, rows, given, wanted);
          ASSERT_EQ(out.bytes, wanted.bytes) << name_of(from) << " to " << name_of(to);
        }
      }
    }
  }
}

TEST(Combine, TheNumberOfThreadsChangesNothing) {
  const int before = num_threads();
  PlainTensor y(DType::bfloat16, {1, 3000, 130}), wanted(DType::float32, {1, 700, 130});
  y.fill(normal_values(3));
  std::vector<std::int32_t> rows;
  for (int i = 0; i < 3000; ++i) rows.push_back(i * 7919 % 700);
  add_up(y, rows, nullptr, wanted);
  for (const int threads : {1, 3, 8}) {
    set_num_threads(threads);
    PlainTensor out(DType::float32, {1, 700, 130});
    run(y, rows, nullptr, out);
    EXPECT_EQ(out.bytes, wanted.bytes) << threads;
  }
  set_num_threads(before);
}

TEST(Combine, ShapesThatHaveLittle) {
  PlainTensor none(DType::float32, {1, 0, 5}), out(DType::float32, {1, 3, 5});
  run(none, {}, nullptr, out);
  EXPECT_EQ(out.bytes, std::vector<std::uint8_t>(60));
  PlainTensor y(DType::float32, {1, 2, 5}), no_tokens(DType::float32, {1, 0, 5});
  y.fill(normal_values(1));
  run(y, {-1, -1}, nullptr, no_tokens);
  PlainTensor narrow(DType::float32, {1, 2, 0}), nothing(DType::float32, {1, 3, 0});
  run(narrow, {0, 2}, nullptr, nothing);
}

TEST(Combine, RefusesWhatDoesNotFit) {
  const auto expect = [](const char* says, auto&& change) {
    PlainTensor y(DType::float32, {1, 4, 8}), out(DType::float32, {1, 3, 8});
    std::vector<std::int32_t> rows = {0, 1, 2, 0};
    std::vector<float> weights(4);
    Buffer from = y.buffer(), to = out.buffer();
    const std::int32_t* numbers = rows.data();
    const float* factors = weights.data();
    const AlignedMemory memory(combine_workspace_bytes(4, 3));
    Workspace workspace = memory.workspace();
    change(rows, numbers, factors, from, to, workspace);
    expect_failure<InvalidArgument>(says, [&] { combine(from, numbers, factors, to, workspace); });
  };
  using Rows = std::vector<std::int32_t>;
  using Numbers = const std::int32_t*;
  using Factors = const float*;
  expect("combine: rows[1] is 3; expected 0 to 2, as out has 3 rows, or -1",
         [](Rows& rows, Numbers&, Factors&, Buffer&, Buffer&, Workspace&) { rows[1] = 3; });
  expect("combine: rows[3] is -2",
         [](Rows& rows, Numbers&, Factors&, Buffer&, Buffer&, Workspace&) { rows[3] = -2; });
  expect("combine: rows is null", [](Rows&, Numbers& numbers, Factors&, Buffer&, Buffer&,
                                     Workspace&) { numbers = nullptr; });
  expect(
      "combine: out has shape [1, 3, 7]; expected [1, 3, 8]",
      [](Rows&, Numbers&, Factors&, Buffer&, Buffer& out, Workspace&) { out.shape.columns = 7; });
  expect("combine: out overlaps weights",
         [](Rows&, Numbers&, Factors& factors, Buffer&, Buffer& out, Workspace&) {
           factors = static_cast<const float*>(out.data) + 2;
         });
  expect("combine: workspace has", [](Rows&, Numbers&, Factors&, Buffer&, Buffer&,
                                      Workspace& workspace) { --workspace.bytes; });
  expect("combine: y has a batch of 2",
         [](Rows&, Numbers&, Factors&, Buffer& y, Buffer&, Workspace&) {
           y.shape = {2, 2, 8};
           y.batch_stride = 16;
         });
  expect_failure<InvalidArgument>("combine_workspace_bytes: there are -1 rows",
                                  [] { combine_workspace_bytes(-1, 3); });
}

}  // namespace
}  // namespace mxkern
