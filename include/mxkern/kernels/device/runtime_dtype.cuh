// mxkern/kernels/device/runtime_dtype.cuh: elements of a buffer whose dtype is known at run time.
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

// Two neighbours, as memory has them.
__device__ __forceinline__ float2 unpack_pair(DType, uint2 pair) {
  return make_float2(__uint_as_float(pair.x), __uint_as_float(pair.y));
}

__device__ __forceinline__ float2 unpack_pair(DType dtype, std::uint32_t word) {
  if (dtype == DType::bfloat16) {
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xFFFF0000u));
  }
  float2 pair;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.f32.f16 %0, low;\n"
      "cvt.f32.f16 %1, high;\n"
      "}\n"
      : "=f"(pair.x), "=f"(pair.y)
      : "r"(word));
  return pair;
}

// Rounds two values to 16 bits each, the first one low.
__device__ __forceinline__ std::uint32_t pack_pair(DType dtype, float low, float high) {
  std::uint32_t packed;
  if (dtype == DType::bfloat16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

__device__ __forceinline__ void store_from_float(void* data, DType dtype, std::int64_t index,
                                                 float value) {
  if (dtype == DType::float32) {
    static_cast<float*>(data)[index] = value;
  } else {
    static_cast<std::uint16_t*>(data)[index] =
        static_cast<std::uint16_t>(pack_pair(dtype, value, 0.0f));
  }
}

}  // namespace mxkern::kernels
