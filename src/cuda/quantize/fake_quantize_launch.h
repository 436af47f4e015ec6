// cuda/quantize/fake_quantize_launch.h: the kernels of fake_quantize, a function a scheme.
#pragma once

#include "mxkern/kernels/quantize/fake_quantize.cuh"
#include "mxkern/quantize.h"

namespace mxkern::cuda {

template <class S>
void launch_fake_quantize(const char* function, DType dtype, const QuantizeOptions& options,
                          const kernels::FakeQuantizeParameters& parameters, Stream stream);

}  // namespace mxkern::cuda
