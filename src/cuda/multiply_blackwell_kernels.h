// cuda/multiply_blackwell_kernels.h: the list of kernels that cuda/instances/ compiles with
// CUTLASS.
#pragma once

#include "cuda/takes_blackwell.h"
#include "mxkern/kernels/block_scaled_product.cuh"

namespace mxkern::cuda {

// A product that why_not_blackwell has nothing against, as a kernel is given it: of the whole
// batch, or of its first matrix. alpha is 1, and nothing is added.
inline kernels::BlockScaledProduct blackwell_product(const BlockScaled& a, const BlockScaled& b,
                                                     const Buffer& out) {
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
          .row_stride = out.row_stride,
          .batch_stride = out.batch_stride};
}

// The kernel of a pair of schemes. For sm_100a a pair stands for all schemes of its widths.
template <class Left, class Right, class Out>
kernels::BlockScaledKernel sm100_kernel();

template <class Left, class Right, class Out>
kernels::BlockScaledKernel sm120_kernel();

#define MXKERN_FOR_EACH_SM100_PAIR(apply)                                         \
  apply(MxFp8E4M3, MxFp8E4M3) apply(MxFp8E4M3, MxFp6E3M2) apply(MxFp8E4M3, MxFp4) \
      apply(MxFp4, MxFp4) apply(NvFp4, NvFp4)

// One of each kind, and those that differ from one in a format alone.
#define MXKERN_FOR_EACH_SM120_KIND(apply)                                         \
  apply(MxFp8E4M3, MxFp8E4M3) apply(MxFp8E4M3, MxFp6E3M2) apply(MxFp8E4M3, MxFp4) \
      apply(MxFp4, MxFp4) apply(NvFp4, NvFp4)

#define MXKERN_FOR_EACH_OTHER_SM120_PAIR(apply)                                           \
  apply(MxFp8E4M3, MxFp8E5M2) apply(MxFp8E4M3, MxFp6E2M3) apply(MxFp8E5M2, MxFp8E4M3)     \
      apply(MxFp8E5M2, MxFp8E5M2) apply(MxFp8E5M2, MxFp6E3M2) apply(MxFp8E5M2, MxFp6E2M3) \
          apply(MxFp8E5M2, MxFp4)

}  // namespace mxkern::cuda
