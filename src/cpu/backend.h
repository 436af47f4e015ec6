// cpu/backend.h: the CPU side of the operations; arguments are checked already.
#pragma once

#include <cstdint>

#include "cpu/kernel_table.h"
#include "mxkern/core/buffer.h"
#include "mxkern/hadamard.h"
#include "mxkern/quantize.h"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern::cpu {

// Quantizes to `rows`, to `columns` (the transpose), or to both; null: not wanted. The kernels are
// those of the best instruction set, unless a test asks for another one.
void quantize(const Buffer& x, const BlockScaled* rows, const QuantizeOptions& row_options,
              const BlockScaled* columns, const QuantizeOptions& column_options,
              const KernelTable& kernels = best_kernels());

// `out` may be x.
void fake_quantize(const Buffer& x, Scheme scheme, const Buffer& out,
                   const QuantizeOptions& options, const KernelTable& kernels = best_kernels());

void tensor_amax(const Buffer& x, float* amax, const AmaxOptions& options,
                 const KernelTable& kernels = best_kernels());

void dequantize(const BlockScaled& q, const Buffer& out,
                const KernelTable& kernels = best_kernels());

void random_hadamard(const Buffer& x, const Buffer& out, const Hadamard& hadamard, bool inverse,
                     const KernelTable& kernels = best_kernels());

void convert_scales(const std::uint8_t* from, ScaleLayout from_layout, std::uint8_t* to,
                    ScaleLayout to_layout, std::int64_t batch, std::int64_t rows,
                    std::int64_t blocks);

}  // namespace mxkern::cpu
