// cuda/experts/swiglu.h: SwiGLU on a CUDA device; arguments are checked already.
#pragma once

#include "mxkern/swiglu.h"

namespace mxkern::cuda {

void swiglu(const char* function, const Buffer& x, const Buffer& out, const SwigluOptions& options,
            Stream stream);

}  // namespace mxkern::cuda
