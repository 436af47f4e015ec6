// bindings/gemm_workspace.h: the matrix product with memory to work in, without the interpreter
// lock.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>
#include <variant>
#include <vector>

#include "bindings.h"
#include "mxkern/grouped_gemm.h"
#include "mxkern/plan.h"

namespace mxkern::bindings {

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

// Memory that is not initialized, aligned as gemm wants it.
inline std::unique_ptr<void, FreeMemory> allocate_workspace(std::size_t bytes) {
  constexpr std::size_t alignment = 64;
  if (bytes == 0) return nullptr;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return std::unique_ptr<void, FreeMemory>(memory);
}

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
  call(out.shape.size() * columns_of(b), [&] {
    const GemmPlan plan = plan_gemm(a, b, out, options);
    const auto memory = allocate_workspace(plan.workspace_bytes());
    gemm(plan, a, b, out, options, {memory.get(), plan.workspace_bytes()});
  });
}

// Runs a grouped product with a workspace of its own. The ends are copied first: another thread may
// write to the caller's, and the workspace has to fit the ends that the product uses.
template <class Groups>
void grouped_gemm_with_workspace(const GemmOperand& a, const GemmRightOperand& b, Groups groups,
                                 const Buffer& out, const GroupedGemmOptions& options) {
  std::vector<std::int32_t> ends;
  if (groups.ends != nullptr) {
    ends.assign(groups.ends, groups.ends + groups.count);
    groups.ends = ends.data();
  }
  const std::size_t bytes = grouped_gemm_workspace_bytes(a, b, groups, out, options);
  const auto memory = allocate_workspace(bytes);
  grouped_gemm(a, b, groups, out, options, {memory.get(), bytes});
}

}  // namespace mxkern::bindings
