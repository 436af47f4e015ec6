// tests/check/gemm_test.cc: what gemm refuses, and what it says.
#include "check/gemm.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "mxkern/core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/gemm_reference.h"

namespace mxkern {
namespace {

using test::PlainTensor;
using test::QuantizedOperand;

// A product whose arguments a test then spoils.
struct Call {
  QuantizedOperand a{Scheme::mxfp8_e4m3, {2, 3, 64}, ScaleLayout::row_major};
  QuantizedOperand b{Scheme::nvfp4, {2, 5, 64}, ScaleLayout::row_major};
  PlainTensor plain{DType::float32, {2, 3, 64}};
  PlainTensor out{DType::float32, {2, 3, 5}};
  PlainTensor bias{DType::float32, {1, 1, 5}};
  BlockScaled left = a.quantized();
  BlockScaled right = b.quantized();
  Buffer left_plain = plain.buffer();
  Buffer result = out.buffer();
  Buffer offset = bias.buffer();

  // The message with which it fails; out must be as it was.
  std::string failure(bool with_plain = false) {
    const std::vector<std::uint8_t> before = out.bytes;
    const test::AlignedMemory memory(1 << 20);
    std::string message = "no failure";
    try {
      const GemmOperand operand = with_plain ? GemmOperand(left_plain) : GemmOperand(left);
      gemm(operand, right, result, {.alpha = 1.0f, .beta = 0.0f, .bias = &offset},
           memory.workspace());
    } catch (const std::exception& error) {
      message = error.what();
    }
    EXPECT_TRUE(message == "no failure" || out.bytes == before) << message;
    return message;
  }
};

void expect_failure(const std::string& wanted, const std::function<void(Call&)>& spoil,
                    bool with_plain = false) {
  Call call;
  spoil(call);
  const std::string message = call.failure(with_plain);
  EXPECT_EQ(message.rfind("gemm: ", 0), 0u) << message;
  EXPECT_NE(message.find(wanted), std::string::npos) << message << "\nexpected: " << wanted;
}

TEST(CheckGemmTest, AGoodCallPasses) {
  EXPECT_EQ(Call{}.failure(), "no failure");
  EXPECT_EQ(Call{}.failure(true), "no failure");
}

TEST(CheckGemmTest, Shapes) {
  expect_failure("a has K = 63 and b has K = 64", [](Call& c) { c.left.shape.columns = 63; });
  expect_failure("b has a batch of 3 and a one of 2", [](Call& c) { c.right.shape.batch = 3; });
  expect_failure("out has shape [2, 3, 4]; expected [2, 3, 5]",
                 [](Call& c) { c.result.shape.columns = 4; });
  expect_failure("out has shape [2, 5, 3]", [](Call& c) { c.result.shape = {2, 5, 3}; });
  expect_failure("a has shape [2, -3, 64]", [](Call& c) { c.left.shape.rows = -3; });
  expect_failure("bias has shape [1, 1, 4]", [](Call& c) { c.offset.shape.columns = 4; });
}

TEST(CheckGemmTest, Strides) {
  expect_failure("out has a row stride of 4", [](Call& c) { c.result.row_stride = 4; });
  expect_failure("out has strides of 5 and 14", [](Call& c) { c.result.batch_stride = 14; });
  expect_failure(
      "a has a row stride of 63", [](Call& c) { c.left_plain.row_stride = 63; }, true);
}

TEST(CheckGemmTest, NullPointers) {
  expect_failure("a.codes is null", [](Call& c) { c.left.codes = nullptr; });
  expect_failure("b.scales is null", [](Call& c) { c.right.scales = nullptr; });
  expect_failure("b.tensor_scale is null", [](Call& c) { c.right.tensor_scale = nullptr; });
  expect_failure(
      "a has shape [2, 3, 64]", [](Call& c) { c.left_plain.data = nullptr; }, true);
  expect_failure("out has shape", [](Call& c) { c.result.data = nullptr; });
  expect_failure("bias has shape", [](Call& c) { c.offset.data = nullptr; });
}

TEST(CheckGemmTest, Devices) {
  expect_failure("a is on cuda:1", [](Call& c) { c.left.device = {DeviceType::cuda, 1}; });
  expect_failure("b is on cuda:0", [](Call& c) { c.right.device = {DeviceType::cuda, 0}; });
  expect_failure("bias is on cuda:0", [](Call& c) { c.offset.device = {DeviceType::cuda, 0}; });
}

#if !defined(MXKERN_HAS_CUDA)
TEST(CheckGemmTest, WithoutCuda) {
  expect_failure("built without CUDA", [](Call& c) {
    c.left.device = c.right.device = c.result.device = c.offset.device = {DeviceType::cuda, 0};
  });
}
#endif

TEST(CheckGemmTest, OutInTheMemoryOfAnInput) {
  expect_failure("out overlaps a.codes", [](Call& c) { c.result.data = c.left.codes + 8; });
  expect_failure("out overlaps b.scales", [](Call& c) { c.result.data = c.right.scales; });
  expect_failure("out overlaps bias", [](Call& c) { c.result.data = c.offset.data; });
  expect_failure(
      "out overlaps a", [](Call& c) { c.result.data = c.left_plain.data; }, true);
}

// Rows of one in the gaps of the other are fine; a byte that both have is not.
TEST(CheckGemmTest, OutBetweenTheRowsOfAnInput) {
  std::vector<float> memory(2 * 3 * 128);
  const auto share = [&](std::int64_t out_begin) {
    return [&, out_begin](Call& c) {
      c.left_plain = {memory.data(), DType::float32, {2, 3, 64}, 128, 3 * 128, {}};
      c.result = {memory.data() + out_begin, DType::float32, {2, 3, 5}, 128, 3 * 128, {}};
    };
  };
  for (const std::int64_t apart : {64, 100, 123}) {
    Call call;
    share(apart)(call);
    EXPECT_EQ(call.failure(true), "no failure") << apart;
  }
  for (const std::int64_t inside : {0, 30, 63})
    expect_failure("out overlaps a", share(inside), true);
}

TEST(CheckGemmTest, ExplanationsLookAtEverythingButMemory) {
  const auto message = [](const std::function<void(Call&)>& spoil) {
    Call call;
    spoil(call);
    for (Buffer* buffer : {&call.left_plain, &call.result, &call.offset}) buffer->data = nullptr;
    return test::error_message(
        [&] { explain_gemm(call.left_plain, call.right, call.result, {.bias = &call.offset}); });
  };
  EXPECT_EQ(message([](Call&) {}), "(nothing was thrown)");
  EXPECT_EQ(message([](Call& c) { c.offset.shape.columns = 4; }),
            "gemm: bias has shape [1, 1, 4]; expected [1, 1, 5]");
  EXPECT_NE(message([](Call& c) { c.left_plain.row_stride = 63; }).find("a has a row stride of 63"),
            std::string::npos);
  EXPECT_NE(message([](Call& c) { c.result.row_stride = 4; }).find("out has a row stride of 4"),
            std::string::npos);
}

// Of a single row and a single matrix: any number.
TEST(CheckGemmTest, StridesThatMeanNothing) {
  PlainTensor x(DType::bfloat16, {1, 1, 64}), out(DType::float32, {1, 1, 5});
  QuantizedOperand b(Scheme::mxfp8_e4m3, {1, 5, 64}, ScaleLayout::row_major);
  x.fill(test::normal_values(1));
  b.quantize(test::normal_values(2));
  Buffer left = x.buffer(), result = out.buffer();
  left.row_stride = result.row_stride = std::numeric_limits<std::int64_t>::max();
  left.batch_stride = result.batch_stride = std::numeric_limits<std::int64_t>::min();
  const test::AlignedMemory memory(gemm_workspace_bytes(left, b.quantized(), result));
  gemm(left, b.quantized(), result, {}, memory.workspace());
  EXPECT_TRUE(test::agrees(out, test::multiply(x, b, out), "strides of one row"));
}

TEST(CheckGemmTest, Precision) {
  Call call;
  const test::AlignedMemory memory(1 << 20);
  for (const GemmPrecision precision : {GemmPrecision::automatic, GemmPrecision::exact}) {
    EXPECT_NO_THROW(
        gemm(call.left, call.right, call.result, {.precision = precision}, memory.workspace()));
  }
  EXPECT_THROW(gemm(call.left, call.right, call.result, {.precision = GemmPrecision::folded},
                    memory.workspace()),
               Unsupported);
  EXPECT_THROW(gemm(call.left, call.right, call.result,
                    {.precision = static_cast<GemmPrecision>(7)}, memory.workspace()),
               InvalidArgument);
}

TEST(CheckGemmTest, PreparedOperands) {
  Call call;
  const auto run = [&](const PreparedOperand& right) {
    const test::AlignedMemory memory(1 << 20);
    gemm(call.left, right, call.result, {}, memory.workspace());
  };
  PreparedOperand right{PreparedForm::source, call.right};
  EXPECT_NO_THROW(run(right));
  right.form = PreparedForm::expanded;  // without data
  EXPECT_THROW(run(right), InvalidArgument);
  right = {PreparedForm::source, call.right};
  right.source.scales = nullptr;
  EXPECT_THROW(run(right), InvalidArgument);
  // Where its data lies counts, however many bytes there are said to be; of a source it has none.
  for (const std::size_t bytes : {std::size_t{1} << 20, SIZE_MAX / 2, SIZE_MAX}) {
    right = {PreparedForm::expanded, call.right, call.result.data, bytes};
    EXPECT_THROW(run(right), InvalidArgument) << bytes;
    right.form = PreparedForm::source;
    EXPECT_NO_THROW(run(right)) << bytes;
  }
}

TEST(CheckGemmTest, Workspace) {
  Call call;
  const std::size_t wanted = gemm_workspace_bytes(call.left, call.right, call.result);
  ASSERT_GT(wanted, 0u);
  const test::AlignedMemory memory(wanted + 64);
  auto* const bytes = static_cast<std::uint8_t*>(memory.workspace().data);
  const auto run = [&](Workspace workspace) {
    gemm(call.left, call.right, call.result, {}, workspace);
  };
  EXPECT_NO_THROW(run({bytes, wanted}));
  EXPECT_THROW(run({bytes, wanted - 1}), InvalidArgument);
  EXPECT_THROW(run({bytes + 4, wanted}), InvalidArgument);
  EXPECT_THROW(run({nullptr, wanted}), InvalidArgument);
}

TEST(CheckGemmTest, WorkspaceBetweenTheRowsOfTheOutput) {
  Call call;
  const std::size_t wanted = gemm_workspace_bytes(call.left, call.right, call.result);
  const test::AlignedMemory memory(wanted + (1 << 20));
  Buffer out = call.result;
  out.data = memory.workspace().data;
  out.row_stride = out.shape.columns + 1;
  out.batch_stride = out.shape.rows * out.row_stride;
  EXPECT_THROW(gemm(call.left, call.right, out, {}, {out.data, wanted}), InvalidArgument);
}

TEST(CheckGemmTest, WorkspaceInTheMemoryOfAnArgument) {
  Call call;
  const std::size_t wanted = gemm_workspace_bytes(call.left, call.right, call.result);
  const test::AlignedMemory memory(wanted + 4096);
  auto* const bytes = static_cast<std::uint8_t*>(memory.workspace().data);
  std::uint8_t* const last = bytes + wanted - 1;
  std::uint8_t* const aligned = bytes + (wanted - 1) / 64 * 64;
  const auto message = [&] {
    try {
      gemm(call.left, call.right, call.result, {.bias = &call.offset}, {bytes, wanted});
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("no failure");
  };
  const Call good = call;
  EXPECT_EQ(message(), "no failure");
  const std::string way_out = "; expected memory of its own; write to another buffer and copy it";
  call.left.codes = last;
  EXPECT_EQ(message(), "gemm: workspace overlaps a.codes" + way_out);
  call.left = good.left;
  call.right.scales = last;
  EXPECT_EQ(message(), "gemm: workspace overlaps b.scales" + way_out);
  call.right = good.right;
  call.result.data = aligned;
  EXPECT_EQ(message(), "gemm: workspace overlaps out" + way_out);
  call.result = good.result;
  call.offset.data = aligned;
  EXPECT_EQ(message(), "gemm: workspace overlaps bias" + way_out);
}

}  // namespace
}  // namespace mxkern
