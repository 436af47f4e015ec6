// mxkern/kernels/gemm/blackwell/product.cuh: what a kernel that multiplies codes and scales is
// given.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mxkern/numerics/scheme.h"

namespace mxkern::kernels {

// out[M, N] = alpha * a[M, K] . b[N, K]^T + beta * out + bias, for each matrix of the batch. Codes
// are dense along K, scales swizzled, matrices follow one another; all of it lies on the device.
struct BlockScaledProduct {
  int m, n, k, batch;
  Scheme left_scheme, right_scheme;
  const std::uint8_t* left_codes;
  const std::uint8_t* left_scales;
  const std::uint8_t* right_codes;
  const std::uint8_t* right_scales;
  float alpha;
  const float* alpha_pointer;  // read in place of alpha; null: alpha
  float beta;
  const float* bias;  // [N], 16-byte aligned, or null
  void* out;
  std::int64_t row_stride, batch_stride;  // of out, in elements
};

// The kernels of one pair of schemes and one output dtype, as functions of the host.
struct BlockScaledKernel {
  // Whether the kernel's own rules allow the product. Needs no device.
  bool (*can_implement)(const BlockScaledProduct& product);
  // Device memory that it wants; the ones we use want none. Needs no device.
  std::size_t (*workspace_bytes)(const BlockScaledProduct& product);
  // Launches on the current device, which has `processors` of them; null, or what failed.
  const char* (*launch)(const BlockScaledProduct& product, int processors, void* stream);
};

}  // namespace mxkern::kernels
