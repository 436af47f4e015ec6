// cpu/experts/gather_rows.h: copies of rows, in an order that a call gives, on the CPU.
#pragma once

#include <cstdint>

#include "mxkern/gemm.h"

namespace mxkern::cpu {

// Row i of `to` becomes row rows[i] of `from`, or one of zeros where that is -1, for i below
// `count`. Both are of one kind, of one matrix each, and `to` has row-major scales; the rows exist.
void gather_rows(const GemmOperand& from, const std::int32_t* rows, std::int64_t count,
                 const GemmOperand& to);

}  // namespace mxkern::cpu
