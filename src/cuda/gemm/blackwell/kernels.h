// cuda/gemm/blackwell/kernels.h: the list of kernels that cuda/instances/ compiles with
// CUTLASS.
#pragma once

#include "mxkern/kernels/gemm/blackwell/product.cuh"

namespace mxkern::cuda {

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
