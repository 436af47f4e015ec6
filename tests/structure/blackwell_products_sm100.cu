// tests/structure/blackwell_products_sm100.cu: bfloat16 products of sm_100a as a release has them;
// of float32 ones one kernel whole, and of the others what the host asks of them.
#include "cuda/instances/multiply_sm100_bfloat16.cu"

namespace mxkern::cuda {

MXKERN_INSTANTIATE_SM100(MxFp8E4M3, MxFp8E4M3, float)

// Nothing to launch: device code would take as long again, and even looking for it takes time.
#if !defined(__CUDA_ARCH__)
#define MXKERN_ASK(Left, Right)                                   \
  template <>                                                     \
  kernels::BlockScaledKernel sm100_kernel<Left, Right, float>() { \
    using Gemm = kernels::GemmSm100<Left, Right, float>;          \
    return {Gemm::can_implement, Gemm::workspace_bytes, nullptr}; \
  }

MXKERN_ASK(MxFp8E4M3, MxFp6E3M2)
MXKERN_ASK(MxFp8E4M3, MxFp4)
MXKERN_ASK(MxFp4, MxFp4)
MXKERN_ASK(NvFp4, NvFp4)
#endif

}  // namespace mxkern::cuda
