// mxkern/kernels/operands/gated_operands.cuh: the operands of an exact product behind a gate, in
// one kernel.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/gate.cuh"
#include "mxkern/kernels/operands/expand.cuh"

namespace mxkern::kernels {

struct GatedOperandsParameters {
  ExpandOperand expanded[2];  // of one scheme
  SpreadGate gate;

  __host__ __device__ std::int64_t groups() const {
    return expanded[0].groups + expanded[1].groups;
  }
};

// One launch for all of them, as each takes 2 us where all it does is ask whether to run. A thread
// block takes every gridDim.x-th group.
template <class S, int Exponent>
__global__ void __launch_bounds__(team_threads, expand_blocks)
    gated_operands_kernel(const __grid_constant__ GatedOperandsParameters p) {
  if (!wait_at_gate(p.gate)) return;
  std::int64_t group = blockIdx.x;
#pragma unroll 1
  for (const ExpandOperand& o : p.expanded) {
#pragma unroll 1
    for (; group < o.groups; group += gridDim.x)
      ExpandCodes<S>{ExpandRow::of_group(o, group)}(Exponent);
    group -= o.groups;
  }
}

}  // namespace mxkern::kernels
