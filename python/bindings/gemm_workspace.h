// bindings/gemm_workspace.h: the matrix product with memory to work in, without the interpreter
// lock.
#pragma once

#include <variant>
#include <vector>

#include "bindings.h"
#include "mxkern/grouped_gemm.h"
#include "mxkern/owned_block_scaled.h"

namespace mxkern::bindings {

// K.
inline std::int64_t columns_of(const GemmRightOperand& b) {
  return std::visit(
      [](const auto& right) {
        if constexpr (requires { right.source; })
          return right.source.shape.columns;
        else
          return right.shape.columns;
      },
      b);
}

// On the CPU.
inline void gemm_with_workspace(const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
                                const GemmOptions& options) {
  call(out.shape.size() * columns_of(b), [&] { gemm(a, b, out, options); });
}

// Runs a grouped product with a workspace of its own. The ends are copied first: another thread may
// write to the caller's, and the workspace has to fit the ends that the product uses.
inline void grouped_gemm_with_workspace(const GemmOperand& a, const GemmRightOperand& b,
                                        Groups groups, const Buffer& out,
                                        const GroupedGemmOptions& options) {
  std::vector<std::int32_t> ends;
  if (groups.ends != nullptr) {
    ends.assign(groups.ends, groups.ends + groups.count);
    groups.ends = ends.data();
  }
  const std::size_t bytes = grouped_gemm_workspace_bytes(a, b, groups, out, options);
  const OwnedMemory memory(bytes);
  grouped_gemm(a, b, groups, out, options, {memory.data(), bytes});
}

}  // namespace mxkern::bindings
