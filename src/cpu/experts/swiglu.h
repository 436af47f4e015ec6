// cpu/experts/swiglu.h: SwiGLU on the CPU; arguments are checked already.
#pragma once

#include "mxkern/swiglu.h"

namespace mxkern::cpu {

void swiglu(const Buffer& x, const Buffer& out, const SwigluOptions& options);

}  // namespace mxkern::cpu
