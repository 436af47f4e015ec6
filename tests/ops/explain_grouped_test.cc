// tests/ops/explain_grouped_test.cc: what explain_grouped_gemm says of products on devices that
// need not be here.
#include <string>
#include <vector>

#include "mxkern/core/error.h"
#include "mxkern/grouped_gemm.h"
#include "plan/grouped.h"
#include "tests/support/error_message.h"
#include "tests/support/gemm_case.h"

namespace mxkern {
namespace {

using namespace test;

constexpr std::int64_t count = 8, rows = 64, outputs = 320, k = 16384;

struct Call {
  GemmOperand a = plain(DType::bfloat16, {1, rows, k});
  GemmRightOperand b = quantized(Scheme::mxfp4, {count, outputs, k});
  Buffer out = plain(DType::bfloat16, {1, rows, outputs});
  GroupedGemmOptions options = {};

  GemmExplanation on(const std::string& device) const {
    return explain_grouped_gemm(a, b, RowGroups{nullptr, count}, out, options, device);
  }
  CudaGroupedPlan plan() const {
    return plan_grouped_cuda(a, b, RowGroups{nullptr, count}, options.precision, hopper);
  }
};

void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(ExplainGrouped, WeightsThatAreDecoded) {
  Call call;
  GemmExplanation text = call.on("sm_90");
  EXPECT_EQ(text.device, "sm_90");
  EXPECT_EQ(text.path, "few tokens");
  expect_in(text.reason, "prepare b in the form few_tokens");
  EXPECT_EQ(text.left, "bfloat16, read as it lies");
  EXPECT_EQ(text.right, "mxfp4, reordered in the call");
  expect_in(text.kernel, "for up to 16 rows of a group at a time");
  EXPECT_EQ(text.kernel.find("never executed"), std::string::npos);
  EXPECT_EQ(text.error, "relative L2 <= 2e-5 * 16384 / 8192, for elements of both signs");
  EXPECT_EQ(text.workspace_bytes, call.plan().workspace_bytes);
  call.b = prepared(PreparedForm::few_tokens, Scheme::mxfp4, {count, outputs, k});
  call.a = quantized(Scheme::nvfp4, {1, rows, k});
  text = call.on("sm_90");
  EXPECT_EQ(text.reason.find("prepare b"), std::string::npos) << text.reason;
  EXPECT_EQ(text.left, "nvfp4, expanded to bfloat16 in the call");
  EXPECT_EQ(text.right, "mxfp4, prepared as few_tokens");
  EXPECT_EQ(text.workspace_bytes, call.plan().workspace_bytes);
}

TEST(ExplainGrouped, WeightsThatAreExpanded) {
  Call call;
  call.a = plain(DType::float32, {1, rows, k});
  GemmExplanation text = call.on("sm_90");
  EXPECT_EQ(text.path, "exact");
  expect_in(text.reason, "a is float32");
  expect_in(text.kernel, "bfloat16 wgmma, tiles of 64x");
  call = {};
  call.b = prepared(PreparedForm::expanded, Scheme::mxfp4, {count, outputs, k});
  text = call.on("sm_90");
  EXPECT_EQ(text.path, "exact");
  EXPECT_EQ(text.reason, "b was prepared as expanded");
  EXPECT_EQ(text.right, "mxfp4, prepared as expanded");
  text = call.on("sm_80");
  EXPECT_EQ(text.path, "portable");
  expect_in(text.reason, "compute capability 8.0");
  EXPECT_EQ(text.kernel,
            "bfloat16 mma.sync, tiles of 64x64; on this kind of GPU compiled, never executed");
}

TEST(ExplainGrouped, FoldedOnes) {
  Call call;
  call.options.precision = GemmPrecision::folded;
  call.a = quantized(Scheme::mxfp8_e4m3, {1, rows, k});
  GemmExplanation text = call.on("sm_90");
  EXPECT_EQ(text.path, "folded");
  EXPECT_EQ(text.left, "mxfp8_e4m3, folded in the call");
  expect_in(text.reason, "prepare b in the form folded");
  expect_in(text.kernel, "FP8 wgmma, tiles of 64x");
  expect_in(text.error, "<= 5e-4");
  EXPECT_THROW(call.on("sm_80"), Unsupported);
  call.a = plain(DType::bfloat16, {1, rows, k});
  EXPECT_THROW(call.on("sm_90"), InvalidArgument);
}

TEST(ExplainGrouped, GroupsOfColumns) {
  const BlockScaled q = quantized(Scheme::mxfp8_e4m3, {1, 256, 1024});
  const Buffer out = plain(DType::bfloat16, {count, 256, 256});
  const auto explained = [&](const GemmOperand& a, GemmPrecision precision,
                             const std::string& device) {
    const GroupedGemmOptions options{.precision = precision};
    return explain_grouped_gemm(a, q, ColumnGroups{nullptr, count}, out, options, device);
  };
  const GemmExplanation folded = explained(q, GemmPrecision::folded, "sm_90");
  EXPECT_EQ(folded.path, "folded");
  expect_in(folded.kernel, "of one group's output each");
  const GemmExplanation exact = explained(q, GemmPrecision::exact, "sm_90");
  EXPECT_EQ(exact.path, "exact");
  expect_in(exact.reason, "groups of columns are multiplied in bfloat16");
  const GemmExplanation half =
      explained(plain(DType::float16, q.shape), GemmPrecision::exact, "sm_90");
  EXPECT_EQ(half.path, "portable");
  expect_in(half.reason, "a is float16");
  EXPECT_EQ(explained(q, GemmPrecision::exact, "sm_120").path, "portable");
}

TEST(ExplainGrouped, ProductsOfNothing) {
  Call call;
  call.a = plain(DType::bfloat16, {1, 0, k});
  call.out = plain(DType::bfloat16, {1, 0, outputs});
  for (const char* device : {"cpu", "sm_90", "sm_80"}) {
    const GemmExplanation text = call.on(device);
    EXPECT_EQ(text.path, "nothing");
    EXPECT_EQ(text.reason, "the output has no elements");
    EXPECT_EQ(text.device, device);
  }
  call = {};
  call.a = plain(DType::bfloat16, {1, rows, 0});
  call.b = quantized(Scheme::mxfp4, {count, outputs, 0});
  EXPECT_EQ(call.on("sm_90").reason, "there is nothing to add up");
  const BlockScaled q = quantized(Scheme::mxfp8_e4m3, {1, 256, 1024});
  const Buffer none = plain(DType::bfloat16, {0, 256, 256});
  for (const char* device : {"cpu", "sm_90", "sm_80"}) {
    EXPECT_EQ(explain_grouped_gemm(q, q, ColumnGroups{}, none, {}, device).path, "nothing");
  }
}

// The ends of operands on the CPU are read, where there are any.
TEST(ExplainGrouped, TheCpu) {
  Call call;
  EXPECT_EQ(call.on("cpu").workspace_bytes, 0u) << "its operands are on a GPU";
  constexpr Device cpu{DeviceType::cpu, 0};
  BlockScaled q = quantized(Scheme::mxfp4, {2, 96, 256});
  q.device = cpu;
  const Buffer x = Buffer::dense(somewhere(), DType::float32, {1, 64, 256}, cpu);
  const Buffer out = Buffer::dense(somewhere(1 << 20), DType::float32, {1, 64, 96}, cpu);
  std::vector<std::int32_t> ends{10, 64};
  const auto explained = [&](const std::int32_t* data) {
    return explain_grouped_gemm(x, q, RowGroups{data, 2}, out);
  };
  const GemmExplanation text = explained(ends.data());
  EXPECT_EQ(text.device, "cpu");
  EXPECT_EQ(text.path, "exact");
  EXPECT_EQ(text.workspace_bytes,
            grouped_gemm_workspace_bytes(x, q, RowGroups{ends.data(), 2}, out));
  EXPECT_GT(text.workspace_bytes, 0u);
  EXPECT_EQ(explained(nullptr).workspace_bytes, 0u);
  EXPECT_EQ(explain_grouped_gemm(x, q, RowGroups{nullptr, 2}, out, {}, "sm_90").path, "exact");
  ends[0] = 65;
  expect_failure<InvalidArgument>("ends[0] is 65", [&] { explained(ends.data()); });
  const GroupedGemmOptions folded{.precision = GemmPrecision::folded};
  EXPECT_THROW(explain_grouped_gemm(x, q, RowGroups{nullptr, 2}, out, folded), Unsupported);
}

TEST(ExplainGrouped, WhatGroupedGemmRefuses) {
  const auto refused = [](const char* says, auto change) {
    Call call;
    change(call);
    expect_failure<InvalidArgument>(says, [&] { call.on("sm_90"); });
  };
  refused("; expected exact or folded",
          [](Call& c) { c.options.precision = GemmPrecision::automatic; });
  refused("precision is number 9; expected one of the precisions",
          [](Call& c) { c.options.precision = static_cast<GemmPrecision>(9); });
  refused("b has 7 matrices", [](Call& c) { c.b = quantized(Scheme::mxfp4, {7, outputs, k}); });
  refused("a has K = 32", [](Call& c) { c.a = plain(DType::bfloat16, {1, rows, 32}); });
  refused("out", [](Call& c) { c.out = plain(DType::bfloat16, {1, rows, outputs + 1}); });
  refused("a has a batch of 2", [](Call& c) { c.a = plain(DType::bfloat16, {2, rows, k}); });
  const Buffer bias = plain(DType::bfloat16, {count, 1, outputs + 1});
  refused("bias", [&](Call& c) { c.options.bias = &bias; });
  expect_failure<InvalidArgument>("sm_1x", [] { Call{}.on("sm_1x"); });
}

}  // namespace
}  // namespace mxkern
