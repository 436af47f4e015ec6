// cuda/quantize/tensor_amax.h: what the quantizer needs beside the public tensor_amax.
#pragma once

#include "mxkern/quantize.h"

namespace mxkern::cuda {

// *amax = the largest finite magnitude of x, or of its Hadamard transform along rows or columns,
// for a quantizer that reads x after it, the end first.
void tensor_amax(const char* function, const Buffer& x, float* amax, const Hadamard& hadamard,
                 bool along_columns, Stream stream);

// The same of x, and of its transform along the columns; in one read of x where that is possible.
void both_amaxes(const char* function, const Buffer& x, float* plain, float* transformed,
                 const Hadamard& hadamard, Stream stream);

// The check that a thread block has room for a tile of float32 and what a transform along columns
// that spans threads makes of it: GPUs of 8.6, 8.9 and 12.0 have 99 KB for one.
void check_transform(const char* function, DType dtype, int hadamard_size);

// Writes the decode multiplier of a tensor without elements.
void store_tensor_scale(const char* function, float* to, const QuantizeOptions& options,
                        Stream stream);

}  // namespace mxkern::cuda
