// mxkern/hadamard.h: the random Hadamard transform of a tensor.
#pragma once

#include "mxkern/core/buffer.h"
#include "mxkern/core/platform.h"
#include "mxkern/numerics/hadamard.h"

namespace mxkern {

// Groups of `size` elements (16, 32, 64 or 128) along the columns. In QuantizeOptions size 0 means
// no transform.
struct Hadamard {
  int size = 0;
  SignMask signs = default_sign_mask;
};

// out = (x * sign) H / sqrt(size) for each group along the columns, in float32, rounded once to the
// dtype of out, which is that of x. `inverse` undoes it: (x H / sqrt(size)) * sign.
// x, out: the same shape, dtype and device; columns a multiple of size. out is x, with the
// same strides, or lies in memory of its own.
// Throws InvalidArgument. Source: Transformer Engine's NVFP4 recipe.
MXKERN_API void random_hadamard(const Buffer& x, const Buffer& out, const Hadamard& hadamard,
                                bool inverse = false, Stream stream = {});

}  // namespace mxkern
