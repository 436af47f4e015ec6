// cuda/quantize/instances.cuh: the bodies behind cuda/quantize/launch.h; each file of
// cuda/instances/ compiles them for one scheme.
#pragma once

#include "cuda/quantize/generic_launch.cuh"
#include "cuda/quantize/row_instances.cuh"
#include "cuda/quantize/tile_instances.cuh"

namespace mxkern::cuda {

template <class S>
void launch_quantize_rows(const char* function, DType dtype, Rounding rounding,
                          const kernels::QuantizeRowsParameters& p, Stream stream) {
  if constexpr (kernels::has_own_kernels<S>) {
    launch_own_rows<S>(function, dtype, rounding, p, stream);
  } else {
    launch_quantize_generic<S>(function, dtype, rounding, p, stream);
  }
}

template <class S>
void launch_quantize_tile(const char* function, DType dtype, Rounding rounding,
                          const kernels::QuantizeTileParameters& p, Stream stream) {
  if constexpr (kernels::has_own_kernels<S>) {
    launch_own_tile<S>(function, dtype, rounding, p, stream);
  } else {
    launch_quantize_generic<S>(function, dtype, rounding, p, stream);
  }
}

#define MXKERN_INSTANTIATE_QUANTIZE(Type)                                                   \
  template void launch_quantize_rows<Type>(const char*, DType, Rounding,                    \
                                           const kernels::QuantizeRowsParameters&, Stream); \
  template void launch_quantize_tile<Type>(const char*, DType, Rounding,                    \
                                           const kernels::QuantizeTileParameters&, Stream);

}  // namespace mxkern::cuda
