// cuda/operands/folded_rows.h: a folded operand's memory, as kernels that write it take it.
#pragma once

#include "cuda/operands/fold.h"
#include "mxkern/kernels/operands/fold.cuh"

namespace mxkern::cuda {

inline kernels::FoldedRows folded_rows(const Shape& shape, void* memory) {
  const RowScaledLayout layout = folded_layout(shape);
  auto* bytes = static_cast<std::uint8_t*>(memory);
  return {bytes, layout.row_bytes, layout.batch_bytes,
          reinterpret_cast<std::int32_t*>(bytes + layout.exponents), bytes + layout.spreads};
}

inline kernels::ZeroedCounters zeroed_counters(const FirstRows& first, const Shape& shape) {
  return {first.progress, first.rows > 0 ? static_cast<int>(first.counters(shape)) : 0};
}

}  // namespace mxkern::cuda
