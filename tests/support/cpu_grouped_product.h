// tests/support/cpu_grouped_product.h: grouped products on the CPU, run, compared and refused.
#pragma once

#include <string>
#include <utility>

#include "mxkern/core/error.h"
#include "mxkern/grouped_gemm.h"
#include "mxkern/prepare_operand.h"
#include "tests/support/error_message.h"
#include "tests/support/grouped_product.h"

namespace mxkern::test {

template <class Left>
void run(GroupedProduct<Left>& p) {
  const GemmOperand a = p.a.operand();
  const BlockScaled b = p.b.quantized();
  const Buffer out = p.out.buffer();
  const GroupedGemmOptions options = p.options();
  const AlignedMemory memory(grouped_gemm_workspace_bytes(a, b, p.groups(), out, options));
  grouped_gemm(a, b, p.groups(), out, options, memory.workspace());
}

template <class Left>
void expect_agrees(GroupedProduct<Left>&& p, std::uint64_t seed) {
  p.fill(seed);
  if (seed % 3 > 0) p.add_output(seed % 3 == 1 ? 1.0f : -0.5f);
  run(p);
  const std::string name = std::string(name_of(p.b.view.scheme)) + ", " + std::to_string(seed);
  ASSERT_TRUE(agrees(p.out, p.wanted(), name));
}

// A prepared operand is its source on the CPU.
inline void expect_prepared_agrees(GroupedProduct<PlainTensor>&& p) {
  p.fill(8);
  const PreparedOperand prepared{PreparedForm::source, p.b.quantized(), nullptr, 0};
  const Buffer out = p.out.buffer();
  const AlignedMemory memory(
      grouped_gemm_workspace_bytes(p.a.operand(), prepared, p.groups(), out));
  grouped_gemm(p.a.operand(), prepared, p.groups(), out, {}, memory.workspace());
  EXPECT_TRUE(agrees(p.out, p.wanted(), "prepared"));
}

// The arguments of a product, to be changed to what is refused.
struct RefusedProduct {
  GroupedProduct<PlainTensor> p;
  GemmOperand a = p.a.operand();
  BlockScaled b = p.b.quantized();
  Groups groups = p.groups();
  Buffer out = p.out.buffer();
  GroupedGemmOptions options = {};
  std::size_t missing = 0;  // bytes of the workspace

  void expect(const std::string& says) {
    expect_failure<InvalidArgument>(says, [&] {
      const std::size_t bytes = grouped_gemm_workspace_bytes(a, b, groups, out, options);
      const AlignedMemory memory(bytes);
      grouped_gemm(a, b, groups, out, options, {memory.workspace().data, bytes - missing});
    });
  }
};

}  // namespace mxkern::test
