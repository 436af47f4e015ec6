// cuda/gemm/blackwell/instances.cuh: the bodies behind cuda/gemm/blackwell/kernels.h. Each file
// of cuda/instances/ compiles some of them for one output dtype: reading the headers takes as long
// as compiling two kernels.
#pragma once

#include "cuda/gemm/blackwell/kernels.h"
#include "mxkern/core/dtype.h"
#include "mxkern/kernels/gemm/blackwell/sm100.cuh"
#include "mxkern/kernels/gemm/blackwell/sm120.cuh"

namespace mxkern::cuda {

template <class Left, class Right, class Out>
kernels::BlockScaledKernel sm100_kernel() {
  return kernels::GemmSm100<Left, Right, Out>::functions();
}

template <class Left, class Right, class Out>
kernels::BlockScaledKernel sm120_kernel() {
  return kernels::GemmSm120<Left, Right, Out>::functions();
}

#define MXKERN_INSTANTIATE_SM100(Left, Right, Out) \
  template kernels::BlockScaledKernel sm100_kernel<Left, Right, Out>();

#define MXKERN_INSTANTIATE_SM120(Left, Right, Out) \
  template kernels::BlockScaledKernel sm120_kernel<Left, Right, Out>();

}  // namespace mxkern::cuda
