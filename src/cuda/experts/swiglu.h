// cuda/experts/swiglu.h: SwiGLU on a CUDA device, alone and folded; arguments are checked already.
#pragma once

#include "mxkern/quantize.h"
#include "mxkern/swiglu.h"

namespace mxkern::cuda {

void swiglu(const char* function, const Buffer& x, const Buffer& out, const SwigluOptions& options,
            Stream stream);

// The same, quantized to a scheme and folded by one kernel, where there is one, of MXFP8 E4M3: then
// it returns true, and `memory` is as swiglu and quantize_folded leave it. `shape`: of the result.
bool swiglu_folded(const char* function, const Buffer& x, const Shape& shape,
                   const SwigluOptions& options, Scheme scheme, ScaleRule rule, void* memory,
                   Stream stream);

}  // namespace mxkern::cuda
