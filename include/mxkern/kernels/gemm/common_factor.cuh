// mxkern/kernels/gemm/common_factor.cuh: alpha and the tensor scales of a product as one factor.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"

namespace mxkern::kernels {

// fraction * 2^exponent: the product may lie far outside of float32 where the result does not.
struct CommonFactor {
  float fraction;
  int exponent;
};

__device__ __forceinline__ CommonFactor divided_factor(double factor) {
  CommonFactor common{static_cast<float>(factor), 0};
  if (isfinite(factor)) common.fraction = static_cast<float>(frexp(factor, &common.exponent));
  return common;
}

// Of parameters with alpha and two tensor scales, which may be null, and of one more.
template <class Parameters>
__device__ __forceinline__ CommonFactor common_factor(const Parameters& p, double more = 1.0) {
  double factor = p.alpha * more;
  if (p.left_tensor_scale) factor *= *p.left_tensor_scale;
  if (p.right_tensor_scale) factor *= *p.right_tensor_scale;
  return divided_factor(factor);
}

__device__ __noinline__ inline CommonFactor far_factor(float alpha, float left, float right,
                                                       float more) {
  return divided_factor(double{alpha} * left * right * more);
}

// The same in a few instructions where all four lie between 2^-31 and 2^31, as they do as a rule:
// then their product is a normal float, and the exponent 0.
__device__ __forceinline__ CommonFactor quick_common_factor(float alpha, float left, float right,
                                                            float more) {
  const auto is_far = [](float x) {
    constexpr std::uint32_t least = 127 - 31, most = 127 + 31;  // biased exponents
    return (bits_of(x) >> float32::mantissa_bits & 0xFFu) - least >= most - least;
  };
  if (is_far(alpha) || is_far(left) || is_far(right) || is_far(more)) {
    return far_factor(alpha, left, right, more);
  }
  return {alpha * left * right * more, 0};
}

}  // namespace mxkern::kernels
