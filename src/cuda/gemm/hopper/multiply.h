// cuda/gemm/hopper/multiply.h: products of row-scaled matrices on Hopper: FP8 and bfloat16 tensor
// cores.
#pragma once

#include <cstdint>

#include "cuda/operands/expand.h"
#include "cuda/operands/row_scaled.h"
#include "mxkern/numerics/format.h"
#include "plan/hopper/tiles.h"

namespace mxkern::cuda {

// Working memory in which thread blocks add up tiles that are divided along K. The first `counters`
// words of 32 bits are 0 when the product starts.
struct PartMemory {
  void* data = nullptr;  // null: no tile is divided
  std::int64_t bytes = 0;
  std::int64_t counters = 0;
  const kernels::WorkOrder* work = nullptr;  // null: divided_work
};

// out[b] = finish(a[b] . b[b]^T). Both operands are FP8, of either kind, or both are bfloat16, or
// one has E4M3 codes with scales and the other is bfloat16: then the sums are those of bfloat16,
// and, where b has the codes, the product is computed as its transpose. FP8 products are summed
// with 14 bits over 128 elements of K and in float32 from there, bfloat16 ones in float32. Compute
// capability 9.0 only.
void multiply_sm90(const char* function, const RowScaled& a, const RowScaled& b,
                   const CoreFinish& finish, const CoreGate& gate, Stream stream,
                   const PartMemory& part_memory = {});

// An operand that is folded, and that the kernel expands where the gate asks for the exact product:
// task.operand is codes, or null where it was expanded ahead.
struct FusedDispatchOperand {
  RowScaled folded, expanded;
  ExpandTask task;
};

// multiply_sm90 of the folded operands, or of the expanded ones, as fused_dispatch_tiles_sm90 cuts
// them; the gate decides which. The operands are one matrix each. progress: four words that are 0.
void multiply_fused_dispatch_sm90(const char* function, const FusedDispatchOperand& a,
                                  const FusedDispatchOperand& b, std::uint32_t* progress,
                                  const CoreFinish& finish, const CoreGate& gate, Stream stream,
                                  const PartMemory& part_memory = {});

// Calls launch with the types of two FP8 elements.
template <class Launch>
void visit_fp8_pair(CoreElement left, CoreElement right, Launch&& launch) {
  const auto with_left = [&]<class Left>() {
    right == CoreElement::e4m3 ? launch.template operator()<Left, E4M3>()
                               : launch.template operator()<Left, E5M2>();
  };
  left == CoreElement::e4m3 ? with_left.template operator()<E4M3>()
                            : with_left.template operator()<E5M2>();
}

}  // namespace mxkern::cuda
