// cuda/gemm/blackwell/product.h: a product as the block-scaled kernels of Blackwell are given it.
#pragma once

#include "plan/blackwell.h"
#include "mxkern/kernels/gemm/blackwell/product.cuh"

namespace mxkern::cuda {

// A product that why_not_blackwell has nothing against, as a kernel is given it: of the whole
// batch, or of its first matrix. alpha is 1, and nothing is added.
inline kernels::BlockScaledProduct blackwell_product(const BlockScaled& a, const BlockScaled& b,
                                                     const Buffer& out) {
  // What is there once has no stride, and the copies want one that is a multiple of 16 bytes.
  const std::int64_t row_stride = a.shape.rows > 1 ? out.row_stride : out.shape.columns;
  return {.m = static_cast<int>(a.shape.rows),
          .n = static_cast<int>(b.shape.rows),
          .k = static_cast<int>(blackwell_depth(b.scheme, b.shape.columns)),
          .batch = is_one_launch(a, b) ? static_cast<int>(a.shape.batch) : 1,
          .left_scheme = a.scheme,
          .right_scheme = b.scheme,
          .left_codes = a.codes,
          .left_scales = a.scales,
          .right_codes = b.codes,
          .right_scales = b.scales,
          .alpha = 1.0f,
          .alpha_pointer = nullptr,
          .beta = 0.0f,
          .bias = nullptr,
          .out = out.data,
          .row_stride = row_stride,
          .batch_stride = a.shape.batch > 1 ? out.batch_stride : a.shape.rows * row_stride};
}

}  // namespace mxkern::cuda
