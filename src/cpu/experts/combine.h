// cpu/experts/combine.h: the sums of the rows of each token on the CPU.
#pragma once

#include <cstdint>

#include "mxkern/core/buffer.h"

namespace mxkern::cpu {

// combine of the first `count` rows of y. rows: numbers from -1 to out's rows - 1 that nobody else
// writes to. memory: out's rows + 1 + count of int32.
void combine(const Buffer& y, const std::int32_t* rows, std::int64_t count, const float* weights,
             const Buffer& out, std::int32_t* memory);

}  // namespace mxkern::cpu
