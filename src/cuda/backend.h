// cuda/backend.h: the CUDA side of the operations; arguments are checked already.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mxkern/core/buffer.h"
#include "mxkern/hadamard.h"
#include "mxkern/quantize.h"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern::cuda {

// Quantizes to `rows`, to `columns` (the transpose), or to both; null: not wanted.
void quantize(const char* function, const Buffer& x, const BlockScaled* rows,
              const QuantizeOptions& row_options, const BlockScaled* columns,
              const QuantizeOptions& column_options, Stream stream);

// `out` may be x.
void fake_quantize(const Buffer& x, Scheme scheme, const Buffer& out,
                   const QuantizeOptions& options, Stream stream);

void tensor_amax(const Buffer& x, float* amax, const AmaxOptions& options, Stream stream);

void dequantize(const BlockScaled& q, const Buffer& out, Stream stream);

void random_hadamard(const Buffer& x, const Buffer& out, const Hadamard& hadamard, bool inverse,
                     Stream stream);

void convert_scales(const std::uint8_t* from, ScaleLayout from_layout, std::uint8_t* to,
                    ScaleLayout to_layout, std::int64_t batch, std::int64_t rows,
                    std::int64_t blocks, Device device, Stream stream);

// The runtime's version, or why no device can be used; and the devices.
std::string describe_runtime();
std::vector<std::string> describe_devices();

}  // namespace mxkern::cuda
