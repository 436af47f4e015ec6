// tests/ops/prepare_operand_test.cc: what prepare_operand refuses, and prepared operands on the
// CPU.
#include "mxkern/prepare_operand.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "mxkern/core/error.h"
#include "mxkern/gemm.h"
#include "tests/support/error_message.h"
#include "tests/support/gemm_reference.h"

namespace mxkern {
namespace {

using test::expect_failure;
using test::PlainTensor;
using test::QuantizedOperand;

TEST(PrepareOperandTest, TheCpuReadsTheSource) {
  const bool has_vectors = cpu::gemm_capabilities().runs(GemmUnit::avx2_panels);
  const PreparedForm best = has_vectors ? PreparedForm::panels : PreparedForm::source;
  for (const Scheme scheme : all_schemes) {
    EXPECT_EQ(best_prepared_form(scheme, {}), best);
    EXPECT_EQ(usable_prepared_form(PreparedForm::panels, scheme, {}), best);
    EXPECT_EQ(usable_prepared_form(PreparedForm::few_tokens, scheme, {}), PreparedForm::source);
    QuantizedOperand a(Scheme::mxfp8_e4m3, {2, 5, 96}, ScaleLayout::row_major);
    QuantizedOperand b(scheme, {1, 7, 96}, ScaleLayout::swizzled);
    a.quantize(test::normal_values(1));
    b.quantize(test::normal_values(2));
    PreparedOperand left{PreparedForm::source, a.quantized()};
    PreparedOperand right{PreparedForm::source, b.quantized()};
    prepare_operand(b.quantized(), right);
    PlainTensor plain(DType::float32, {2, 5, 7}), prepared(DType::float32, {2, 5, 7});
    const test::AlignedMemory memory(1 << 20);
    gemm(a.quantized(), b.quantized(), plain.buffer(), {}, memory.workspace());
    gemm(left, right, prepared.buffer(), {}, memory.workspace());
    EXPECT_EQ(plain.bytes, prepared.bytes) << name_of(scheme);
  }
}

// What was prepared on a device and moved here: data is left aside, wherever it lies.
TEST(PrepareOperandTest, TheCpuNeedsTheSource) {
  QuantizedOperand a(Scheme::mxfp8_e4m3, {1, 5, 96}, ScaleLayout::row_major);
  a.quantize(test::normal_values(1));
  alignas(256) static std::uint8_t memory[1 << 16];
  PreparedOperand moved{PreparedForm::folded, a.quantized(), memory + 1, sizeof(memory) - 1};
  PlainTensor plain(DType::float32, {1, 5, 5}), prepared(DType::float32, {1, 5, 5});
  const test::AlignedMemory work(1 << 20);
  gemm(a.quantized(), a.quantized(), plain.buffer(), {}, work.workspace());
  gemm(moved, moved, prepared.buffer(), {}, work.workspace());
  EXPECT_EQ(plain.bytes, prepared.bytes);
  moved.source.codes = moved.source.scales = nullptr;
  const auto refuse = [&](const char* wanted, const GemmOperand& left,
                          const GemmRightOperand& right) {
    expect_failure(wanted, [&] { gemm(left, right, plain.buffer(), {}, work.workspace()); });
    expect_failure(wanted, [&] { gemm_workspace_bytes(left, right, plain.buffer()); });
    expect_failure(wanted, [&] { explain_gemm(left, right, plain.buffer()); });
  };
  refuse("gemm: a was prepared without its codes and scales", moved, a.quantized());
  refuse("gemm: b was prepared without its codes and scales", a.quantized(), moved);
}

TEST(PrepareOperandTest, SchemesWithoutAFoldedForm) {
  for (const Scheme scheme : {Scheme::mxint8, Scheme::nvfp4}) {
    expect_failure(
        std::string("prepared_bytes: form is folded, but the scheme is ") + name_of(scheme), [&] {
          prepared_bytes(PreparedForm::folded, scheme, {1, 4, 64});
        });
  }
  expect_failure("prepared_bytes: shape has shape", [] {
    prepared_bytes(PreparedForm::expanded, Scheme::nvfp4, {1, -4, 64});
  });
  EXPECT_GT(prepared_bytes(PreparedForm::folded, Scheme::mxfp4, {1, 4, 64}), 4u * 64u);
  EXPECT_GT(prepared_bytes(PreparedForm::expanded, Scheme::nvfp4, {1, 4, 64}), 4u * 128u - 1);
  EXPECT_GT(prepared_bytes(PreparedForm::few_tokens, Scheme::nvfp4, {1, 32, 128}), 32u * 64u);
  EXPECT_EQ(prepared_bytes(PreparedForm::source, Scheme::nvfp4, {1, 4, 64}), 0u);
}

TEST(PrepareOperandTest, BadArguments) {
  QuantizedOperand b(Scheme::mxfp8_e4m3, {1, 7, 96}, ScaleLayout::row_major);
  const BlockScaled q = b.quantized();
  alignas(256) static std::uint8_t memory[1 << 16];
  PreparedOperand out{PreparedForm::folded, q, memory, 1 << 16};
  expect_failure("which products on cpu do not read", [&] { prepare_operand(q, out); });
  out.bytes = 16;
  expect_failure("has 16 bytes of data", [&] { prepare_operand(q, out); });
  out.bytes = 1 << 16;
  out.data = nullptr;
  expect_failure("out.data is null; expected memory for", [&] { prepare_operand(q, out); });
  out.form = static_cast<PreparedForm>(9);
  expect_failure("prepare_operand: out.form is number 9;", [&] { prepare_operand(q, out); });
  PlainTensor x(DType::float32, {1, 7, 96});
  out = {PreparedForm::source, q};
  expect_failure("expected folded for a plain x", [&] { prepare_operand(x.buffer(), out); });
  out = {PreparedForm::folded, q, memory, 1 << 16};
  out.source.codes = nullptr;
  expect_failure("out.source has scales and no codes; expected both, or neither",
                 [&] { prepare_operand(x.buffer(), out); });
  std::swap(out.source.codes, out.source.scales);
  expect_failure("out.source has codes and no scales", [&] { prepare_operand(x.buffer(), out); });
}

// Before the device is asked what it reads, and where it reads nothing.
TEST(PrepareOperandTest, DataOfTooFewBytesOrAtAWrongAddress) {
  QuantizedOperand b(Scheme::mxfp8_e4m3, {1, 7, 96}, ScaleLayout::row_major);
  BlockScaled q = b.quantized();
  alignas(256) static std::uint8_t memory[1 << 16];
  const std::size_t wanted = prepared_bytes(PreparedForm::folded, q.scheme, q.shape);
  const auto prepare_in = [&](std::uint8_t* data, std::size_t bytes) {
    return [&, data, bytes] { prepare_operand(q, {PreparedForm::folded, q, data, bytes}); };
  };
  expect_failure("has " + std::to_string(wanted - 1) + " bytes of data; expected " +
                     std::to_string(wanted) + "; ask prepared_bytes",
                 prepare_in(memory, wanted - 1));
  expect_failure("which products on cpu do not read", prepare_in(memory, wanted));
  expect_failure("which products on cpu do not read", prepare_in(memory + 1, wanted));
  q.device = {DeviceType::cuda, 0};
  expect_failure("out.data is misaligned; expected an address that is a multiple of 128",
                 prepare_in(memory + 64, wanted));
}

TEST(PrepareOperandTest, FormsOfWhatIsNone) {
  static constexpr Device nowhere{static_cast<DeviceType>(9), 0};
  expect_failure("best_prepared_form: scheme is number 99",
                 [] { best_prepared_form(static_cast<Scheme>(99), {}); });
  expect_failure("best_prepared_form: device type number 9; expected cpu or cuda",
                 [] { best_prepared_form(Scheme::mxfp4, nowhere); });
  expect_failure("usable_prepared_form: device type number 9",
                 [] { usable_prepared_form(PreparedForm::expanded, Scheme::mxfp4, nowhere); });
  expect_failure("usable_prepared_form: form is number 9",
                 [] { usable_prepared_form(static_cast<PreparedForm>(9), Scheme::mxfp4, {}); });
}

TEST(PrepareOperandTest, OptionsThatDoNotFit) {
  PlainTensor x(DType::float32, {1, 7, 96});
  alignas(256) static std::uint8_t memory[1 << 16];
  PreparedOperand out{PreparedForm::folded, {}, memory, 1 << 16};
  out.source.scheme = Scheme::mxfp8_e4m3;
  out.source.shape = {1, 7, 96};
  const auto refuse = [&](const char* wanted, const QuantizeOptions& options) {
    expect_failure(wanted, [&] { prepare_operand(x.buffer(), out, options); });
  };
  refuse("scale rule number 9", {.scale_rule = static_cast<ScaleRule>(9)});
  refuse("four_over_six is for nvfp4", {.four_over_six = true});
  const float amax = 1.0f;
  refuse("amax and tensor_scale are for nvfp4", {.amax = &amax});
  refuse("quantize it first", {.rounding = Rounding::stochastic});
  refuse("quantize it first", {.hadamard = {32, default_sign_mask}});
  out.source.shape.rows = 64;  // whole squares
  PlainTensor square(DType::float32, {1, 64, 96});
  expect_failure("quantize it first", [&] {
    prepare_operand(square.buffer(), out, {.block_shape = BlockShape::square});
  });
}

TEST(PrepareOperandTest, MemoryThatIsTaken) {
  alignas(256) static std::uint8_t memory[1 << 16];
  QuantizedOperand b(Scheme::mxfp8_e4m3, {1, 7, 96}, ScaleLayout::row_major);
  BlockScaled q = b.quantized();
  q.codes = memory + 64;
  expect_failure("out.data overlaps q.codes", [&] {
    prepare_operand(q, {PreparedForm::folded, q, memory, 1 << 16});
  });
  const Buffer x = Buffer::dense(memory + 1024, DType::bfloat16, {1, 7, 96});
  PreparedOperand out{PreparedForm::folded, b.quantized(), memory, 1 << 16};
  expect_failure("out.data overlaps x", [&] { prepare_operand(x, out); });
  PlainTensor apart(DType::float32, {1, 7, 96});
  out.source.scales = memory;
  expect_failure("overlaps out.data", [&] { prepare_operand(apart.buffer(), out); });
  const BlockScaled own = b.quantized();
  out.source = BlockScaled::of(own.scheme, own.shape, own.scale_layout, own.codes, own.scales);
  expect_failure("out.source is a view of memory that is only read",
                 [&] { prepare_operand(apart.buffer(), out); });
}

// A product is written to nothing that an operand consists of, read on the CPU or not.
TEST(PrepareOperandTest, ProductsOverOperands) {
  alignas(256) static std::uint8_t memory[1 << 16];
  QuantizedOperand first(Scheme::mxfp8_e4m3, {1, 7, 96}, ScaleLayout::row_major);
  QuantizedOperand second(Scheme::mxfp8_e4m3, {1, 7, 96}, ScaleLayout::row_major);
  first.quantize(test::normal_values(1));
  second.quantize(test::normal_values(2));
  const BlockScaled a = first.quantized();
  const PreparedOperand b{PreparedForm::folded, second.quantized(), memory, sizeof memory};
  const test::AlignedMemory work(1 << 20);
  const auto refuse = [&](const char* wanted, const GemmOperand& left,
                          const GemmRightOperand& right, void* data) {
    const Buffer out = Buffer::dense(data, DType::float32, {1, 7, 7});
    expect_failure(wanted, [&] { gemm(left, right, out, {}, work.workspace()); });
  };
  refuse("gemm: out overlaps b.data", a, b, memory + 1024);
  refuse("gemm: out overlaps b.codes", a, b, b.source.codes);
  refuse("gemm: out overlaps a.data", b, a, memory + 1024);
  refuse("gemm: out overlaps a.codes", b, a, b.source.codes);
}

TEST(PrepareOperandTest, ExplainsTheCpuAndOtherDevices) {
  QuantizedOperand a(Scheme::mxfp8_e4m3, {1, 64, 96}, ScaleLayout::row_major);
  PlainTensor out(DType::bfloat16, {1, 64, 64});
  const BlockScaled q = a.quantized();
  const GemmExplanation here = explain_gemm(q, q, out.buffer());
  EXPECT_EQ(here.device, "cpu");
  EXPECT_NE(here.kernel.find("tiles of"), std::string::npos) << here.kernel;
  EXPECT_EQ(explain_gemm(q, q, out.buffer(), {}, "sm_90").path, "folded or exact");
  EXPECT_EQ(explain_gemm(q, q, out.buffer(), {}, "sm_89").path, "portable");
  for (const char* device : {"sm_80", "sm_89", "sm_90", "sm_100", "sm_120"}) {
    const std::string kernel = explain_gemm(q, q, out.buffer(), {}, device).kernel;
    const bool says_so = kernel.find("compiled, never executed") != std::string::npos;
    EXPECT_EQ(says_so, std::string(device) != "sm_90") << device << ": " << kernel;
  }
  // A plan reads nothing, so that what prepare_operand would write need not be there.
  PlainTensor x(DType::bfloat16, {1, 64, 96});
  const PreparedOperand few{PreparedForm::few_tokens, q};
  EXPECT_EQ(explain_gemm(x.buffer(), few, out.buffer(), {}, "sm_90").path, "few tokens");
  EXPECT_EQ(explain_gemm(x.buffer(), few, out.buffer(), {}, "sm_89").path, "portable");
  BlockScaled wrong = q;
  wrong.scheme = static_cast<Scheme>(77);
  expect_failure("a has scheme number 77", [&] { explain_gemm(wrong, q, out.buffer()); });
  expect_failure("gemm: b.form is number 77;", [&] {
    explain_gemm(q, PreparedOperand{static_cast<PreparedForm>(77), q}, out.buffer());
  });
  Buffer odd = out.buffer();
  odd.dtype = static_cast<DType>(77);
  expect_failure("out has dtype number 77", [&] { explain_gemm(q, q, odd, {}, "sm_90"); });
  odd = out.buffer();
  odd.shape.rows = wrong.shape.rows = std::int64_t{1} << 60;
  wrong.scheme = q.scheme;
  expect_failure("expected fewer than 2^60 elements", [&] { explain_gemm(wrong, q, odd); });
  odd.shape.rows = wrong.shape.rows = -1;
  expect_failure("expected no negative extent", [&] { explain_gemm(wrong, q, odd, {}, "sm_90"); });
  const GemmOptions unknown{.precision = static_cast<GemmPrecision>(77)};
  expect_failure("precision is number 77", [&] { explain_gemm(q, q, out.buffer(), unknown); });
  expect_failure("device is 'gpu'", [&] { explain_gemm(q, q, out.buffer(), {}, "gpu"); });
  const GemmOptions folded{.precision = GemmPrecision::folded};
  expect_failure("the CPU's products are exact", [&] { explain_gemm(q, q, out.buffer(), folded); });
}

}  // namespace
}  // namespace mxkern
