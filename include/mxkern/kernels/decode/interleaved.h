// mxkern/kernels/decode/interleaved.h: the order in which folded rows meet reordered weights.
#pragma once

#include "mxkern/core/math.h"

namespace mxkern::kernels {

// What a lane has of 16 columns of the weights are two pairs of mma.m16n8k16, eight columns apart;
// of FP8 the instruction takes these four for adjacent ones. So of each 16 columns of a row the
// pairs are in the order 0 4 1 5 2 6 3 7. Returns where a column is.
MXKERN_HOST_DEVICE constexpr std::int64_t interleaved_column(std::int64_t column) {
  const std::int64_t pair = column % 16 / 2;
  return column - column % 16 + (pair % 4 * 2 + pair / 4) * 2 + column % 2;
}

}  // namespace mxkern::kernels
