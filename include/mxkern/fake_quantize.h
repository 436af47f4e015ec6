// mxkern/fake_quantize.h: a tensor as a scheme would give it back.
#pragma once

#include "mxkern/core/buffer.h"
#include "mxkern/core/platform.h"
#include "mxkern/quantize.h"

namespace mxkern {

// out = dequantize(quantize(x, options)), to the bit, without codes and scales in memory.
// x [batch, rows, columns], out the same of x's dtype: memory of its own, or x itself.
// options: as for quantize, but for a Hadamard transform, which there is none of. NVFP4 on CUDA
// needs found_amax where neither amax nor tensor_scale is given, as there. Square blocks with
// four_over_six are Unsupported on CUDA. Throws InvalidArgument, InvalidType and Unsupported.
MXKERN_API void fake_quantize(const Buffer& x, Scheme scheme, const Buffer& out,
                              const QuantizeOptions& options = {}, Stream stream = {});

}  // namespace mxkern
