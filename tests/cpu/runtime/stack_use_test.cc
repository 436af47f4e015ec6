// tests/cpu/runtime/stack_use_test.cc: how much stack the operations take, by every instruction
// set: threads may have as little as 64 KiB of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "cpu/backend.h"
#include "mxkern/mxkern.h"
#include "tests/support/gemm_reference.h"
#include "tests/support/grouped_product.h"
#include "tests/support/kernel_tables.h"
#include "tests/support/painted_stack.h"
#include "tests/support/quantize_options.h"

namespace mxkern {
namespace {

using namespace test;

// The limit of the library itself: with the bindings that call it from Python, 24 KiB.
constexpr std::size_t most = 20 * 1024;

class StackUse : public testing::Test {
 protected:
  void SetUp() override {
#if defined(MXKERN_SANITIZE) || !defined(__OPTIMIZE__)
    GTEST_SKIP() << "frames are larger in a build that is not optimized, or has a sanitizer";
#endif
  }

  void expect_little(const std::string& name, const std::function<void()>& call) {
    const std::size_t used = stack_.used_by(call);
    EXPECT_LE(used, most) << name;
    deepest_ = std::max(deepest_, {used, name});
  }

  void TearDown() override {
    RecordProperty("deepest", std::to_string(deepest_.first) + " bytes: " + deepest_.second);
  }

 private:
  PaintedStack stack_;
  std::pair<std::size_t, std::string> deepest_;
};

// Too little for other threads to help: it is this one whose stack is measured.
constexpr Shape shape{1, 128, 128};

void for_each_set(const std::function<void(const std::string&, const cpu::KernelTable&)>& visit) {
  for (const cpu::InstructionSet set : available_instruction_sets()) {
    visit(cpu::name_of(set), cpu::kernels_for(set));
  }
}

TEST_F(StackUse, OfQuantize) {
  for_each_set([&](const std::string& set, const cpu::KernelTable& kernels) {
    for (const Scheme scheme : all_schemes) {
      for (const DType dtype : all_dtypes) {
        Tensor x(dtype, shape), out(dtype, shape);
        fill_mixed(x, 1);
        Quantized rows(scheme, shape, ScaleLayout::swizzled);
        Quantized columns(scheme, shape.transposed(), ScaleLayout::row_major);
        const auto quantize = [&](const QuantizeOptions& options) {
          const std::string name = set + ", " + name_of(scheme) + ", " + describe(x, options);
          expect_little(name, [&] {
            cpu::quantize(x.buffer(), &rows.out(), options, &columns.out(), options, kernels);
          });
        };
        for_each_option(scheme, [&](const QuantizeOptions& options) {
          quantize(options);
          expect_little(
              set + ", fake_quantize, " + name_of(scheme) + ", " + describe(x, options),
              [&] { cpu::fake_quantize(x.buffer(), scheme, out.buffer(), options, kernels); });
        });
        for (const int size : hadamard_sizes) {
          QuantizeOptions options;
          options.rounding = Rounding::stochastic;
          options.hadamard.size = size;
          quantize(options);
        }
      }
    }
  });
}

TEST_F(StackUse, OfTheOthers) {
  for_each_set([&](const std::string& set, const cpu::KernelTable& kernels) {
    for (const DType dtype : all_dtypes) {
      Tensor x(dtype, shape), out(dtype, shape);
      fill_mixed(x, 1);
      const std::string name = set + ", " + name_of(dtype);
      for (const Scheme scheme : all_schemes) {
        Quantized q(scheme, shape, ScaleLayout::swizzled);
        quantize(x.buffer(), q.out());
        expect_little(name + ", dequantize, " + name_of(scheme),
                      [&] { cpu::dequantize(q.out(), out.buffer(), kernels); });
      }
      float amax = 0.0f;
      expect_little(name + ", tensor_amax",
                    [&] { cpu::tensor_amax(x.buffer(), &amax, {}, kernels); });
      for (const int size : hadamard_sizes) {
        for (const bool inverse : {false, true}) {
          expect_little(name + ", random_hadamard", [&] {
            cpu::random_hadamard(x.buffer(), out.buffer(), {.size = size}, inverse, kernels);
          });
        }
      }
    }
  });
}

// The checks, and what has one instruction set.
TEST_F(StackUse, OfCalls) {
  Tensor x(DType::float32, shape);
  fill_mixed(x, 1);
  Quantized rows(Scheme::nvfp4, shape, ScaleLayout::row_major);
  Quantized columns(Scheme::nvfp4, shape.transposed(), ScaleLayout::row_major);
  expect_little("quantize_both", [&] { quantize_both(x.buffer(), rows.out(), columns.out()); });
  Quantized swizzled(Scheme::nvfp4, shape, ScaleLayout::swizzled);
  const std::int64_t blocks = rows.view.scale_index().blocks;
  expect_little("swizzle_scales", [&] {
    swizzle_scales(rows.scales.data(), swizzled.scales.data(), 1, shape.rows, blocks);
  });
  expect_little("unswizzle_scales", [&] {
    unswizzle_scales(swizzled.scales.data(), rows.scales.data(), 1, shape.rows, blocks);
  });
}

// Rows of scales that lie so far apart that sums are computed once more, in double precision.
void spread(QuantizedOperand& operand) {
  operand.for_each_row([&](std::int64_t batch, std::int64_t row) {
    for (std::int64_t block = 0; block < operand.view.scale_index().blocks; ++block) {
      operand.scale(batch, row, block) = static_cast<std::uint8_t>(block % 2 == row % 2 ? 20 : 110);
    }
  });
}

TEST_F(StackUse, OfProducts) {
  constexpr std::int64_t k = 1056;
  for (const Scheme scheme : all_schemes) {
    QuantizedOperand a(scheme, {1, 20, k}, ScaleLayout::swizzled);
    QuantizedOperand b(scheme, {1, 40, k}, ScaleLayout::row_major);
    a.quantize(normal_values(1));
    b.quantize(normal_values(2));
    spread(a);
    spread(b);
    const std::size_t panel_bytes = prepared_bytes(PreparedForm::panels, scheme, b.view.shape);
    const AlignedMemory panels(panel_bytes);
    PreparedOperand prepared{PreparedForm::panels, b.quantized(), panels.workspace().data,
                             panel_bytes};
    prepare_operand(b.quantized(), prepared);
    for (const DType dtype : all_dtypes) {
      PlainTensor plain(dtype, {1, 20, k}), out(dtype, {1, 20, 40});
      plain.fill(normal_values(3));
      for (const GemmUnit unit : available_units()) {
        for (const GemmOperand& left : {a.operand(), plain.operand()}) {
          const GemmRightOperand right =
              reads_panels(unit) ? GemmRightOperand(prepared) : GemmRightOperand(b.quantized());
          const CpuGemmPlan plan =
              plan_gemm_cpu_with(unit, cpu_problem(left, right, out.buffer()), 2);
          const AlignedMemory memory(plan.workspace_bytes);
          const std::string name =
              std::string(name_of(unit)) + ", " + operand_name(left) + " * " + name_of(scheme);
          expect_little(
              name, [&] { gemm_with(plan, left, right, out.buffer(), {}, memory.workspace()); });
        }
      }
    }
  }
}

TEST_F(StackUse, OfGroupedProducts) {
  for (const GroupAxis axis : {GroupAxis::rows, GroupAxis::columns}) {
    auto p = quantized_product(Scheme::nvfp4, {1, 70, 256}, Scheme::nvfp4, 90, {32, 64},
                               DType::float32, ScaleLayout::swizzled, axis);
    p.fill(1);
    const GemmOperand a = p.a.operand();
    const BlockScaled b = p.b.quantized();
    const Buffer out = p.out.buffer();
    const AlignedMemory memory(grouped_gemm_workspace_bytes(a, b, p.groups(), out));
    expect_little("grouped_gemm",
                  [&] { grouped_gemm(a, b, p.groups(), out, {}, memory.workspace()); });
  }
}

}  // namespace
}  // namespace mxkern
