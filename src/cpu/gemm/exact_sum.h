// cpu/gemm/exact_sum.h: sums of products that may be too small for a unit: when they are, and what
// they are. Units see what is far below the largest of its row as zero (see shifts.h).
#pragma once

#include <cstdint>

#include "cpu/gemm/kernels.h"

namespace mxkern::cpu {

// A unit's sum of this magnitude or more, before the shifts are taken back, has lost nothing that
// counts. 0 where no sum loses anything.
float least_certain_sum(const GemmMatrix& left, const GemmMatrix& right);

// Of a row: how many octaves lie between its largest scale and that of its smallest block which is
// not all zeros; of a plain row, between its elements. Or settled_row, where the row is all zeros
// or has a NaN, which units know what to do with.
inline constexpr std::int32_t settled_row = -1;
std::int32_t row_spread(const GemmMatrix& matrix, std::int64_t row);

// Whether a sum of products of rows with such spreads may have lost some of them.
constexpr bool may_lose_products(std::int32_t left_spread, std::int32_t right_spread) {
  return left_spread != settled_row && right_spread != settled_row &&
         left_spread + right_spread > 100;
}

// The sum in double precision, scales of blocks included: no product is too large for it, or too
// small. Tensor scales are not included.
double exact_sum(const GemmMatrix& left, std::int64_t row, const GemmMatrix& right,
                 std::int64_t column);

}  // namespace mxkern::cpu
