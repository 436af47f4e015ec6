// cuda/gemm/blackwell/multiply.h: products of codes and scales on the tensor cores of Blackwell,
// through CUTLASS. Compiled, never executed: no such GPU was among those that the tests have run
// on.
#pragma once

#include "cuda/operands/row_scaled.h"
#include "plan/blackwell.h"
#include "mxkern/gemm.h"

namespace mxkern::cuda {

// finish.out = finish.alpha * the tensor scales * a . b^T + beta * out + bias; finish names the
// tensor scales. The product of alpha and the tensor scales is a float32. Returns false, and does
// nothing, where the kernels do not take the product, or this build has none for out's device.
// workspace: blackwell_workspace(a, b).bytes on the device, aligned to 16. Never waits.
bool multiply_blackwell(const char* function, const BlockScaled& a, const BlockScaled& b,
                        const CoreFinish& finish, Workspace workspace, Stream stream);

}  // namespace mxkern::cuda
