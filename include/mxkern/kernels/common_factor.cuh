// mxkern/kernels/common_factor.cuh: alpha and the tensor scales of a product as one factor.
#pragma once

#include "mxkern/core/math.h"

namespace mxkern::kernels {

// fraction * 2^exponent: the product may lie far outside of float32 where the result does not.
struct CommonFactor {
  float fraction;
  int exponent;
};

// Of parameters with alpha and two tensor scales, which may be null, and of one more.
template <class Parameters>
__device__ __forceinline__ CommonFactor common_factor(const Parameters& p, double more = 1.0) {
  double factor = p.alpha * more;
  if (p.left_tensor_scale) factor *= *p.left_tensor_scale;
  if (p.right_tensor_scale) factor *= *p.right_tensor_scale;
  CommonFactor common{static_cast<float>(factor), 0};
  if (isfinite(factor)) common.fraction = static_cast<float>(frexp(factor, &common.exponent));
  return common;
}

}  // namespace mxkern::kernels
