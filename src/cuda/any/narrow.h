// cuda/any/narrow.h: launches of the kernels for codes of at most 8 bits. Each answers whether they
// are for such a call; if not, it has done nothing.
#pragma once

#include "mxkern/custom.h"
#include "mxkern/kernels/any/parameters.h"

namespace mxkern::cuda {

bool quantize_narrow(const char* function, const AnyBuffer& x, const AnyBuffer* values,
                     const kernels::AnyQuantizeParameters<std::uint32_t>& any,
                     const AnyOptions& options, Stream stream);
bool dequantize_narrow(const char* function, const AnyBuffer& out,
                       const kernels::AnyDecodeParameters<std::uint32_t>& any, Stream stream);

}  // namespace mxkern::cuda
