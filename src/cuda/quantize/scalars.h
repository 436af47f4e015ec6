// cuda/quantize/scalars.h: the options of a quantization as kernels take them, and the scalars on
// the device that belong to them.
#pragma once

#include "cuda/runtime/device_scope.h"
#include "mxkern/kernels/quantize/octet.cuh"
#include "mxkern/quantize.h"

namespace mxkern::cuda {

inline kernels::OctetOptions octet_options(Scheme scheme, const QuantizeOptions& options) {
  const float* amax = options.amax != nullptr ? options.amax : options.found_amax;
  const E8M0Rule rule = visit(scheme, [&](auto type) {
    return E8M0Rule::of<typename decltype(type)::Format>(options.scale_rule);
  });
  return {rule,
          options.four_over_six,
          options.block_error,
          PhiloxKeys::of(options.seed),
          {options.offset, options.offset_at},
          amax,
          options.tensor_scale,
          nullptr,
          options.hadamard.size,
          options.hadamard.signs};
}

inline void check_scalar_pointers(const char* function, const QuantizeOptions& options,
                                  Device device) {
  check_device_pointer(function, "amax", options.amax, device);
  check_device_pointer(function, "tensor_scale", options.tensor_scale, device);
  check_device_pointer(function, "offset_at", options.offset_at, device);
  check_device_pointer(function, "found_amax", options.found_amax, device);
}

inline void check_found_amax(const char* function, const QuantizeOptions& options) {
  check(options.found_amax != nullptr, function,
        ": found_amax is null; on CUDA NVFP4 needs a float32 on the device to keep the amax that "
        "it finds; set options.found_amax, or give amax or tensor_scale");
}

}  // namespace mxkern::cuda
