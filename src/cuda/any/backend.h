// cuda/any/backend.h: the CUDA backend of schemes and formats that are known at run time. Arguments
// are checked, but for pointers.
#pragma once

#include "mxkern/custom.h"

namespace mxkern::cuda {

void quantize_any(const AnyBuffer& x, const AnyBlockScaled& out, const AnyOptions& options,
                  Stream stream);
void dequantize_any(const AnyBlockScaled& q, const AnyBuffer& out, Stream stream);
// Writes zeros.
void clear(void* data, std::size_t bytes, Device device, Stream stream);
void fake_quantize_any(const AnyBuffer& x, const AnyScheme& scheme, const AnyBuffer& out,
                       const AnyOptions& options, Stream stream);
void round_any(const AnyBuffer& x, const AnyFormat& format, const AnyBuffer& out,
               const AnyOptions& options, Stream stream);
void multiply_float32(const Buffer& a, const Buffer& b, const Buffer& out,
                      const AnyProductOptions& options, Stream stream);

}  // namespace mxkern::cuda
