// cuda/operands/gated_operands.cu: the launch of the kernel that makes operands behind a gate.
#include "cuda/operands/gated_operands.h"

#include <algorithm>
#include <cstdint>
#include <variant>

#include "cuda/operands/expand_operand.h"
#include "cuda/operands/fold.h"
#include "cuda/runtime/launch.h"
#include "cuda/operands/spread_gate.h"
#include "mxkern/kernels/operands/gated_operands.cuh"

namespace mxkern::cuda {
namespace {

Scheme scheme_of(const char* function, const ExpandTask& task) {
  const auto* q = std::get_if<BlockScaled>(task.operand);
  check(q != nullptr && fold_facts(q->scheme).can_fold, function, ": an operand behind a gate is ",
        q == nullptr ? "plain" : name_of(q->scheme), "; expected one that can be folded");
  return q->scheme;
}

// Few thread blocks, which take turns: where the gate is closed, all they do is ask, and each of
// them asks all the spreads. As many as fit share a multiprocessor, which leaves others to the
// product behind.
void launch_gated(const char* function, Scheme scheme, const kernels::GatedOperandsParameters& p,
                  Stream stream) {
  const std::int64_t most = std::int64_t{2} * processor_count(function);
  visit(scheme, [&]<class S>(S) {
    if constexpr (scheme_can_fold<S>) {
      launch<Start::early>(function, kernels::gated_operands_kernel<S, expanded_exponent>,
                           grid_of(std::min(p.groups(), most)), kernels::team_threads, 0, stream,
                           p);
    }
  });
}

}  // namespace

void gated_operands(const char* function, const ExpandTask& first, const ExpandTask& second,
                    const CoreGate& gate, const RowScaled& left, const RowScaled& right,
                    Stream stream) {
  kernels::GatedOperandsParameters p = {};
  p.gate = spread_gate(gate, left, right);
  Scheme scheme = {};
  int count = 0;
  for (const ExpandTask& task : {first, second}) {
    if (task.operand == nullptr) continue;
    const Scheme other = scheme_of(function, task);
    if (count > 0 && other != scheme) {
      launch_gated(function, scheme, p, stream);
      p.expanded[0] = {};
      count = 0;
    }
    scheme = other;
    p.expanded[count++] = expand_operand(function, task);
  }
  if (count > 0) launch_gated(function, scheme, p, stream);
}

}  // namespace mxkern::cuda
