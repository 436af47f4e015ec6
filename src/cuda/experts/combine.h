// cuda/experts/combine.h: the sums of the rows of each token on a CUDA device.
#pragma once

#include <cstdint>

#include "mxkern/core/buffer.h"

namespace mxkern::cuda {

// combine of checked arguments. end: null, or how many rows count, on the device. memory:
// combine_workspace_bytes. rows_are_complete: they and the end, when the kernel ahead is launched.
void combine(const char* function, const Buffer& y, const std::int32_t* rows,
             const std::int32_t* end, const float* weights, const Buffer& out, void* memory,
             Stream stream, bool rows_are_complete = false);

}  // namespace mxkern::cuda
