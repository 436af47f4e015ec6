// cuda/experts/gather_rows.h: copies of rows, in an order that a call gives, on a CUDA device.
#pragma once

#include <cstdint>

#include "mxkern/gemm.h"

namespace mxkern::cuda {

// Row i of `to` becomes row rows[i] of `from`, for i below `count`: one of zeros where that is -1,
// and one of NaN where there is no such row. Both are of one kind, of one matrix each: plain,
// quantized, or prepared in the form folded or expanded, without their source. `to` has row-major
// scales.
void gather_rows(const char* function, const GemmOperand& from, const std::int32_t* rows,
                 std::int64_t count, const GemmOperand& to, Stream stream);

}  // namespace mxkern::cuda
