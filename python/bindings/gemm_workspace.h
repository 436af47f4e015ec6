// bindings/gemm_workspace.h: the grouped product with memory to work in.
#pragma once

#include <variant>
#include <vector>

#include "bindings.h"
#include "mxkern/grouped_gemm.h"
#include "mxkern/owned_block_scaled.h"

namespace mxkern::bindings {

// The right operand as it was before anything was prepared.
inline const BlockScaled& source_of(const GemmRightOperand& b) {
  const auto* prepared = std::get_if<PreparedOperand>(&b);
  return prepared != nullptr ? prepared->source : std::get<BlockScaled>(b);
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
