// cuda/quantize/launch.h: the kernels that depend on the scheme, one set of functions a scheme.
#pragma once

#include "mxkern/kernels/quantize/patch/kernel.cuh"
#include "mxkern/kernels/quantize/rows.cuh"
#include "mxkern/kernels/quantize/tile/phases.cuh"
#include "mxkern/quantize.h"

namespace mxkern::cuda {

template <class S>
void launch_quantize_rows(const char* function, DType dtype, Rounding rounding,
                          const kernels::QuantizeRowsParameters& parameters, Stream stream);

template <class S>
void launch_quantize_tile(const char* function, DType dtype, Rounding rounding,
                          const kernels::QuantizeTileParameters& parameters, Stream stream);

}  // namespace mxkern::cuda
