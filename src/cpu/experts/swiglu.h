// cpu/experts/swiglu.h: SwiGLU on the CPU; arguments are checked already.
#pragma once

#include "cpu/kernel_table.h"
#include "mxkern/swiglu.h"

namespace mxkern::cpu {

void swiglu(const Buffer& x, const Buffer& out, const SwigluOptions& options,
            const KernelTable& kernels = best_kernels());

}  // namespace mxkern::cpu
