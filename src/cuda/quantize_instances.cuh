// cuda/quantize_instances.cuh: the bodies behind quantize_launch.h; each file of cuda/instances/
// compiles them for one scheme.
#pragma once

#include "cuda/quantize_row_instances.cuh"
#include "cuda/quantize_tile_instances.cuh"

namespace mxkern::cuda {

#define MXKERN_INSTANTIATE_QUANTIZE(Type)                                                   \
  template void launch_quantize_rows<Type>(const char*, DType, Rounding,                    \
                                           const kernels::QuantizeRowsParameters&, Stream); \
  template void launch_quantize_tile<Type>(const char*, DType, Rounding,                    \
                                           const kernels::QuantizeTileParameters&, Stream);

}  // namespace mxkern::cuda
