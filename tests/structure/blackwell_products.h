// tests/structure/blackwell_products.h: what the host asks of float32 products on Blackwell.
#pragma once

#include "mxkern/numerics/scheme.h"

// All but that of MXFP8 with itself, which is compiled whole. Nothing to launch: device code would
// take as long again, and even looking for it takes time.
#if defined(__CUDA_ARCH__)
#define MXKERN_ASK_PRODUCTS(kernel_of, Gemm)
#else
#define MXKERN_ASK_PRODUCT(kernel_of, Gemm, Left, Right)                \
  template <>                                                           \
  kernels::BlockScaledKernel kernel_of<Left, Right, float>() {          \
    using Product = kernels::Gemm<Left, Right, float>;                  \
    return {Product::can_implement, Product::workspace_bytes, nullptr}; \
  }
#define MXKERN_ASK_PRODUCTS(kernel_of, Gemm)                \
  MXKERN_ASK_PRODUCT(kernel_of, Gemm, MxFp8E4M3, MxFp6E3M2) \
  MXKERN_ASK_PRODUCT(kernel_of, Gemm, MxFp8E4M3, MxFp4)     \
  MXKERN_ASK_PRODUCT(kernel_of, Gemm, MxFp4, MxFp4)         \
  MXKERN_ASK_PRODUCT(kernel_of, Gemm, NvFp4, NvFp4)
#endif
