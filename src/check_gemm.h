// check_gemm.h: the checks of the arguments of gemm.
#pragma once

#include <cstddef>

#include "mxkern/gemm.h"

namespace mxkern {

// Shapes, devices and pointers of the operands and the output. Throws InvalidArgument.
void check_gemm(const GemmOperand& a, const BlockScaled& b, const Buffer& out);

// bias may be null.
void check_gemm_bias(const Buffer* bias, const Buffer& out);

void check_gemm_workspace(Workspace workspace, std::size_t bytes);

}  // namespace mxkern
