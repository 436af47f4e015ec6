// mxkern/kernels/load_as_float.cuh: an element of a buffer whose dtype is known at run time.
#pragma once

#include <cstdint>

#include "mxkern/core/dtype.h"

namespace mxkern::kernels {

__device__ __forceinline__ float load_as_float(const void* data, DType dtype, std::int64_t index) {
  if (dtype == DType::float32) return static_cast<const float*>(data)[index];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[index];
  if (dtype == DType::bfloat16) return to_float(bfloat16{bits});
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

}  // namespace mxkern::kernels
