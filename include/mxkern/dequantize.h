// mxkern/dequantize.h: codes and scales back to a plain tensor.
#pragma once

#include "mxkern/core/buffer.h"
#include "mxkern/core/platform.h"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern {

// out = code * scale (* tensor scale) in float32, rounded once to out's dtype.
// out: the logical shape of q, on its device, float32, float16 or bfloat16. Any bytes are valid
// codes and scales; a NaN scale makes its block NaN. out lies in memory of its own. Throws
// InvalidArgument.
MXKERN_API void dequantize(const BlockScaled& q, const Buffer& out, Stream stream = {});

}  // namespace mxkern
