// cpu/any/backend.h: the CPU backend of schemes and formats that are known at run time. Arguments
// are checked.
#pragma once

#include "cpu/kernel_table.h"
#include "mxkern/custom.h"

namespace mxkern::cpu {

void quantize_any(const AnyBuffer& x, const AnyBlockScaled& out, const AnyOptions& options,
                  const KernelTable& kernels = best_kernels());
void dequantize_any(const AnyBlockScaled& q, const AnyBuffer& out,
                    const KernelTable& kernels = best_kernels());
void fake_quantize_any(const AnyBuffer& x, const AnyScheme& scheme, const AnyBuffer& out,
                       const AnyOptions& options, const KernelTable& kernels = best_kernels());
void round_any(const AnyBuffer& x, const AnyFormat& format, const AnyBuffer& out,
               const AnyOptions& options, const KernelTable& kernels = best_kernels());
void multiply_float32(const Buffer& a, const Buffer& b, const Buffer& out,
                      const AnyProductOptions& options,
                      const KernelTable& kernels = best_kernels());
void accumulate_products(const Buffer& a, const Buffer& b, const Buffer& out,
                         const AnyFormat& format, const AnyRoundingOptions& rounding,
                         const AnyProductOptions& options,
                         const KernelTable& kernels = best_kernels());

}  // namespace mxkern::cpu
