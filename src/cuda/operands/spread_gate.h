// cuda/operands/spread_gate.h: a gate and the operands that it asks about, as kernels take them.
#pragma once

#include "cuda/operands/row_scaled.h"
#include "mxkern/kernels/device/gate.cuh"

namespace mxkern::cuda {

// left, right: the operands whose spreads answer.
inline kernels::SpreadGate spread_gate(const CoreGate& gate, const RowScaled& left,
                                       const RowScaled& right) {
  kernels::SpreadGate question = {};
  question.is_open = gate.is_open;
  question.wants_narrow = gate.wants_narrow;
  question.is_settled = gate.is_settled;
  question.left_limit = gate.left_limit;
  question.right_limit = gate.right_limit;
  question.left = left.spreads;
  question.left_count = left.batch * left.rows;
  question.right = right.spreads;
  question.right_count = right.batch * right.rows;
  return question;
}

}  // namespace mxkern::cuda
